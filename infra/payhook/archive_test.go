package payhook

import (
	"fmt"
	"strings"
	"testing"
)

// CloudFormation creates the archive of another bus before it deletes that of the first one, so their names must
// differ. The name does not depend on how a bus is imported, because another name is another archive.
func TestEachBusHasAnArchiveOfItsOwnName(t *testing.T) {
	long := strings.Repeat("payments.", 20)
	seen := map[string]string{}
	check := func(bus, name string) {
		if seen[name] != "" != (bus == busARN+"a") || len(name) > 48 || !strings.HasPrefix(name, "Payhook") {
			t.Errorf("%s: %q, as %q", bus, name, seen[name])
		}
		seen[name] = bus
	}
	for _, bus := range []string{"payments", "payments-staging", long + "a", long + "b", long[:48], long[:49]} {
		_, p := newPayhook(t, "", map[string]any{"eventBusName": bus})
		check(bus, p.archiveName())
	}
	for _, bus := range []string{"a", "b", busARN + "a", busARN + "c", "+d", "+e"} {
		tm, err := onBuses(t, false, bus)
		if err != nil {
			t.Fatal(err)
		}
		check(bus, fmt.Sprint(tm.get(t, "Archive", "AWS::Events::Archive").Properties["ArchiveName"]))
	}
}
