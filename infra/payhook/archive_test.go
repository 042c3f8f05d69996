package payhook

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheArchiveHasWhatPayhookPublishes(t *testing.T) {
	tm := payhook(t, map[string]any{"archiveRetention": "90d", "eventSource": "payments.hook"})
	archive := tm.get(t, "Archive", "AWS::Events::Archive")
	if got := tm.render(archive.Properties["SourceArn"]); got != "Bus.Arn" {
		t.Errorf("it archives the events of %s", got)
	}
	if archive.Properties["RetentionDays"] != 90.0 {
		t.Errorf("%v days", archive.Properties["RetentionDays"])
	}
	// No detail-type, so that no event is left out.
	want := map[string]any{"source": []any{"payments.hook"}}
	if diff := cmp.Diff(want, archive.Properties["EventPattern"]); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := tm.render(tm.Outputs["EventArchive"].Value); got != "Archive" {
		t.Errorf("the output is %s", got)
	}
}

func TestTheArchiveIsKeptFor30Days(t *testing.T) {
	if got := payhook(t, nil).get(t, "Archive", "AWS::Events::Archive").Properties["RetentionDays"]; got != 30.0 {
		t.Errorf("%v days", got)
	}
}

func TestTheArchiveCanBeLeftOut(t *testing.T) {
	for name, settings := range map[string]map[string]any{
		"off": {"archiveRetention": "off", "encryption": "cmk"}, "local": local,
	} {
		tm := payhook(t, settings)
		for path, r := range tm.Resources {
			if name == "off" && r.Type == "AWS::Events::Archive" {
				t.Errorf("%s: %s is in the template", name, path)
			}
		}
		if _, ok := tm.Outputs["EventArchive"]; ok {
			t.Errorf("%s: an output names the archive", name)
		}
		if strings.Contains(tm.text, "ArchiveOfThisStack") {
			t.Errorf("%s: the key has a statement for the archive", name)
		}
	}
}

// CloudFormation creates the archive of a renamed bus before it deletes that of the old
// one, so their names must differ.
func TestEachBusHasAnArchiveOfItsOwnName(t *testing.T) {
	long := strings.Repeat("payments.", 20)
	names := map[any]string{}
	for _, bus := range []string{"payments", "payments-staging", long + "a", long + "b", long[:48], long[:49]} {
		name := payhook(t, map[string]any{"eventBusName": bus}).get(t, "Archive",
			"AWS::Events::Archive").Properties["ArchiveName"]
		if other, ok := names[name]; ok || len(name.(string)) > 48 {
			t.Errorf("%s: %v, as %q", bus, name, other)
		}
		names[name] = bus
	}
}

// The name does not depend on how the bus is imported, because another name is another archive.
func TestEachGivenBusHasAnArchiveOfItsOwnName(t *testing.T) {
	names := map[any]string{}
	for _, bus := range []string{"a", "b", busARN + "a", busARN + "c", "+d", "+e"} {
		tm, err := onBuses(t, false, bus)
		if err != nil {
			t.Fatal(err)
		}
		name := tm.get(t, "Archive", "AWS::Events::Archive").Properties["ArchiveName"]
		if names[name] != "" != (bus == busARN+"a") || !strings.HasPrefix(fmt.Sprint(name), "Payhook-") {
			t.Errorf("%s: %v, as %q", bus, name, names[name])
		}
		names[name] = bus
	}
}
