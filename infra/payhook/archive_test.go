package payhook

import (
	"fmt"
	"strings"
	"testing"
)

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
