package payment

import (
	"runtime/debug"
	"slices"
	"strings"
)

// module is the path of this module.
const module = "payhook.example"

// Version returns the version of this module that the running program was built from: the commit of the clone, and
// whether it was modified; of a program of another module, the version that its go.mod names. It is "unknown" if Go has
// recorded neither, as for go run and go test.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return unknown
	}
	return versionIn(info)
}

// UserAgent returns the User-Agent of a version as [Version] returns it, such as payhook/v1.2.0, or with the commit. It
// is one product, without spaces (RFC 9110, section 10.1.5).
func UserAgent(version string) string {
	version, _, _ = strings.Cut(strings.TrimPrefix(version, "commit "), ",")
	return "payhook/" + version
}

const unknown = "unknown"

// versionIn returns the version that Go has recorded in a program (https://go.dev/ref/mod#go-version-m).
func versionIn(info *debug.BuildInfo) string {
	of := func(key string) string { // the commit is that of the main module
		if i := slices.IndexFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == key }); i >= 0 {
			return info.Settings[i].Value
		}
		return ""
	}
	m, commit := &info.Main, of("vcs.revision")
	if m.Path != module {
		i := slices.IndexFunc(info.Deps, func(d *debug.Module) bool { return d.Path == module })
		if i < 0 {
			return unknown
		}
		if m, commit = info.Deps[i], ""; m.Replace != nil {
			m = m.Replace
		}
	}
	version := m.Version
	if version == "" || version == "(devel)" {
		version = unknown
	}
	if commit == "" {
		return version
	}
	commit = commit[:min(12, len(commit))]
	text := "commit " + commit
	if version != unknown && !strings.Contains(version, commit) { // a tag
		text = version + ", " + text
	}
	if of("vcs.modified") == "true" {
		text += ", modified"
	}
	return text
}
