package payment

import (
	"runtime/debug"
	"testing"
)

// The texts are those that go version -m prints.
func TestVersionIsThatOfTheModule(t *testing.T) {
	const (
		revision = "build\tvcs=git\nbuild\tvcs.revision=dce0b28ab7440d3ee4774bbaa6b8e6133153df25\n"
		clean    = revision + "build\tvcs.modified=false\n"
		modified = revision + "build\tvcs.modified=true\n"
	)
	for _, c := range []struct{ want, agent, text string }{
		{"commit dce0b28ab744", "payhook/dce0b28ab744",
			"mod\tpayhook.example\tv0.0.0-20261123052642-dce0b28ab744\t\n" + clean},
		{"commit dce0b28ab744, modified", "payhook/dce0b28ab744",
			"mod\tpayhook.example\tv0.0.0-20261123052642-dce0b28ab744+dirty\t\n" + modified},
		{"v1.2.0, commit dce0b28ab744", "payhook/v1.2.0", "mod\tpayhook.example\tv1.2.0\t\n" + clean},
		{"commit dce0b28ab744, modified", "payhook/dce0b28ab744", "mod\tpayhook.example\t(devel)\t\n" + modified},
		{"unknown", "payhook/unknown", "mod\tpayhook.example\t(devel)\t\n"},
		{"unknown", "payhook/unknown", "mod\tpayhook.example\t\t\n"},
		{"v1.2.0", "payhook/v1.2.0", "mod\tpayhook.example\tv1.2.0\th1:a=\n"}, // go install
		// Another CDK app, whose commit is not that of this module.
		{"v1.2.0", "payhook/v1.2.0", "mod\tbank.example\tv3.0.0\t\ndep\tpayhook.example\tv1.2.0\th1:a=\n" + clean},
		{"unknown", "payhook/unknown",
			"mod\tbank.example\tv3.0.0\t\ndep\tpayhook.example\tv1.2.0\n=>\t../payhook\t(devel)\t\n" + clean},
		{"v1.2.1", "payhook/v1.2.1",
			"mod\tbank.example\tv3.0.0\t\ndep\tpayhook.example\tv1.2.0\n=>\tfork.example\tv1.2.1\th1:b=\n"},
		{"unknown", "payhook/unknown", "mod\tbank.example\tv3.0.0\t\ndep\tother.example\tv1.0.0\th1:a=\n"},
	} {
		info, err := debug.ParseBuildInfo("go\tgo1.27.4\npath\texample\n" + c.text)
		if err != nil {
			t.Fatal(err)
		}
		if got := versionIn(info); got != c.want {
			t.Errorf("%q, want %q for\n%s", got, c.want, c.text)
		}
		if got := UserAgent(c.want); got != c.agent {
			t.Errorf("%q, want %q for\n%s", got, c.agent, c.want)
		}
	}
	if got := Version(); got == "" {
		t.Error("this test has no version")
	}
}
