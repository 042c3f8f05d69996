package stack

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/google/go-cmp/cmp"
)

func TestLocalFileIsReadAsWritten(t *testing.T) {
	top := t.TempDir()
	if _, err := Read(top); err == nil {
		t.Error("nothing is up, and it was read")
	}
	want := &Stack{Local: true, WebhookURL: "http://127.0.0.1:1/", StackName: "Payhook",
		Queues: map[string]string{"released": "http://127.0.0.1:1/q"}, Given: map[string]string{"encryption": "a"}}
	if err := want.Write(top); err != nil {
		t.Fatal(err)
	}
	got, err := Read(top)
	if err != nil {
		t.Fatal(err)
	}
	got.AWS = aws.Config{}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	Remove(top)
	if _, err := Read(top); err == nil {
		t.Error("it was read although it was removed")
	}
}

func TestRestartKeepsTheGivenSettings(t *testing.T) {
	run := &Stack{Given: map[string]string{"encryption": "a", "scopes": "a b", "keyIdLocation": "query:a"},
		Settings: map[string]string{"encryption": "a", "keyIdLocation": "query:a", "storeRejected": "7d"}}
	const want = `make down && make up SETTINGS="encryption=a keyEndpointAuth=none keyIdLocation=query:b scopes='a b'"`
	if got := run.Restart(map[string]string{"keyEndpointAuth": "none", "keyIdLocation": "query:b"}); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	// A stranger chose the name of the header.
	for _, name := range []string{"x-`id`", "x-$(id)", "x-$id", `x-"`, "x-'", "x-!a", "x\n", "x-ü"} {
		if got := run.Restart(map[string]string{"keyIdLocation": "header:" + name}); strings.Contains(got, name) {
			t.Errorf("%s: %s", name, got)
		}
	}
	if run.Given["keyIdLocation"] != "query:a" {
		t.Error("it changed what was given")
	}
}
