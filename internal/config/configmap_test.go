package config_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tidegate/tidegate/internal/config"
)

// configMap is a folder as Kubernetes mounts a ConfigMap: tidegate.yaml → ..data/tidegate.yaml,
// ..data → a folder that each update makes anew.
type configMap struct {
	folder string
	data   string // what ..data points at
}

func (m *configMap) swap(t *testing.T, text string) {
	t.Helper()
	fresh, err := os.MkdirTemp(m.folder, "..2026_")
	check(t, err)
	write(t, filepath.Join(fresh, "tidegate.yaml"), text)
	link := filepath.Join(m.folder, "..data_tmp")
	check(t, os.Symlink(filepath.Base(fresh), link))
	check(t, os.Rename(link, filepath.Join(m.folder, "..data")))
	if m.data != "" {
		check(t, os.RemoveAll(m.data))
	}
	m.data = fresh
}

func newConfigMap(t *testing.T) (m *configMap, path string) {
	t.Helper()
	m = &configMap{folder: t.TempDir()}
	m.swap(t, limits("a"))
	path = filepath.Join(m.folder, "tidegate.yaml")
	check(t, os.Symlink("..data/tidegate.yaml", path))
	return m, path
}

func TestWatcherFollowsAConfigMap(t *testing.T) {
	t.Parallel()
	for _, layout := range []string{"direct", "behind a link, by notices alone"} {
		t.Run(layout, func(t *testing.T) {
			t.Parallel()
			m, path := newConfigMap(t)
			prepare := func(*config.Watcher) {}
			if layout != "direct" {
				link := filepath.Join(t.TempDir(), "conf")
				check(t, os.Symlink(m.folder, link))
				path, prepare = filepath.Join(link, "tidegate.yaml"), (*config.Watcher).OnlyNotices
			}
			f := follow(t, path, prepare)
			for _, name := range []string{"b", "c", "d"} {
				if layout != "direct" {
					m.data = "" // the end of the former folder would be a notice, too
				}
				m.swap(t, limits(name))
				f.want(t, "apply "+name)
			}
		})
	}
}
