package config

import (
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// maxLinks is how many symbolic links are followed, as Linux does.
const maxLinks = 40

// writers says who has a file open for writing.
type writers int

const (
	unknownWriter writers = iota
	noWriter
	someWriter
)

// fileID tells one file from another, and from itself after a change.
type fileID struct {
	info fs.FileInfo // nil: no file
}

func identify(path string) (fileID, error) {
	info, err := os.Stat(path)
	return fileID{info}, err
}

// same reports whether both are one file, whatever it holds.
func (f fileID) same(other fileID) bool {
	if f.info == nil || other.info == nil {
		return f.info == other.info
	}
	return os.SameFile(f.info, other.info)
}

// unchanged reports whether both are one file that nobody has changed in between.
func (f fileID) unchanged(other fileID) bool {
	return f.same(other) && f.size() == other.size() && f.modified().Equal(other.modified())
}

func (f fileID) size() int64 {
	if f.info == nil {
		return 0
	}
	return f.info.Size()
}

func (f fileID) modified() time.Time {
	if f.info == nil {
		return time.Time{}
	}
	return f.info.ModTime()
}

// observation is what a file is at one moment.
type observation struct {
	id      fileID
	content string // a digest of data, or the text of err
	data    []byte
	err     error // why there is no data
	writers writers
}

// same reports whether nothing has happened between the two.
func (o observation) same(other observation) bool {
	return o.content == other.content && o.id.unchanged(other.id)
}

// observe reads the file. Who writes it is found out only when the content is not the known one:
// asking may make another program's attempt to open it without waiting fail, for microseconds.
func observe(path, known string) observation {
	id, err := identify(path)
	switch {
	case err != nil:
		return unreadable(err)
	case !id.info.Mode().IsRegular(): // opening a named pipe could take for ever
		return unreadable(&fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("not a plain file: %v", id.info.Mode().Type())})
	}
	file, err := os.Open(path)
	if err != nil {
		return unreadable(err)
	}
	defer file.Close()
	first := readFrom(file)
	if first.err != nil || first.content == known {
		return first
	}
	// When nobody writes between two equal readings, then what was read is what the last writer
	// left.
	who := writersOf(file)
	second := readFrom(file)
	second.writers = who
	if !second.same(first) {
		second.writers = someWriter
	}
	return second
}

// readFrom reads the open file from its beginning.
func readFrom(file *os.File) observation {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return unreadable(err)
	}
	data, err := readAll(file)
	if err != nil {
		return unreadable(err)
	}
	info, err := file.Stat()
	if err != nil {
		return unreadable(err)
	}
	return observation{id: fileID{info}, content: digest(data), data: data}
}

func unreadable(err error) observation {
	return observation{content: err.Error(), err: fmt.Errorf("config: read: %w", err)}
}

// readFile returns what the file holds, or enough of it to see that it is too large.
func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("config: read: %w", err)
	}
	defer file.Close()
	data, err := readAll(file)
	if err != nil {
		return nil, fmt.Errorf("config: read: %w", err)
	}
	return data, nil
}

func readAll(r io.Reader) ([]byte, error) { return io.ReadAll(io.LimitReader(r, maxFile+1)) }

func digest(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

// steps returns the places that decide which file path means: every symbolic link on the way and
// the file itself, or the first place where there is nothing yet. None of their directories' names
// holds a link.
func steps(path string) []string {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil
	}
	const slash = string(filepath.Separator)
	root := filepath.VolumeName(abs) + slash
	var found []string
	at, rest := root, strings.Split(strings.TrimPrefix(abs, root), slash)
	for links := 0; len(rest) > 0 && links <= maxLinks; {
		name := rest[0]
		rest = rest[1:]
		next := filepath.Join(at, name) // of . and .. too, for at holds no link
		info, err := os.Lstat(next)
		if err != nil {
			return append(found, next)
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		found = append(found, next)
		target, err := os.Readlink(next)
		if err != nil {
			return found
		}
		if filepath.IsAbs(target) {
			at = root
		}
		rest = append(strings.Split(target, slash), rest...)
		links++
	}
	return append(found, at)
}
