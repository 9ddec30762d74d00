package main

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/tidegate/tidegate/internal/admin"
)

const versionHelp = `Usage: sidecar version

Prints the version, the commit it was built from when the build recorded it, and Go's version.
`

func runVersion(args []string, stdout io.Writer) error {
	others, err := parse(newFlags("version"), versionHelp, args, stdout)
	if err != nil {
		return err
	}
	if len(others) > 0 {
		return usageError("version takes no arguments")
	}
	build := buildOf()
	commit := ""
	if build.Commit != "" {
		commit = ", commit " + build.Commit
	}
	_, err = fmt.Fprintf(stdout, "sidecar %s%s, %s %s/%s\n", build.Version, commit, build.Go, runtime.GOOS, runtime.GOARCH)
	return err
}

// buildOf says what this binary is: the version that the build set, or else the module's.
func buildOf() admin.Build {
	build := admin.Build{Version: version, Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return build
	}
	if build.Version == "dev" && info.Main.Version != "(devel)" {
		build.Version = cmp.Or(info.Main.Version, build.Version)
	}
	for _, setting := range info.Settings {
		switch {
		case setting.Key == "vcs.revision":
			build.Commit = setting.Value + build.Commit
		case setting.Key == "vcs.modified" && setting.Value == "true":
			build.Commit += "-dirty"
		}
	}
	return build
}
