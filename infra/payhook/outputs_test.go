package payhook

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// go test ./infra/payhook -run Runbook -update writes the table.
func TestRunbookListsEveryOutput(t *testing.T) {
	meanings := map[string]string{}
	for _, variant := range reviewed {
		for name, output := range payhook(t, map[string]any{"stackName": "Bank"}, variant.settings).Outputs {
			meanings[name] = output.Description
		}
	}
	want := "| output | meaning |\n|---|---|\n"
	for _, name := range slices.Sorted(maps.Keys(meanings)) {
		want += fmt.Sprintf("| `%s` | %s |\n", name, meanings[name])
	}
	file, begin, end := filepath.Join("..", "RUNBOOK.md"), "<!-- outputs -->\n", "<!-- /outputs -->"
	before, rest, _ := strings.Cut(string(readFile(t, file)), begin)
	got, after, ended := strings.Cut(rest, end)
	switch {
	case !ended:
		t.Errorf("%s has no table between the lines %s and %s", file, begin, end)
	case *update:
		writeFile(t, file, before+begin+want+end+after)
	case got != want:
		diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n"))
		t.Errorf("%s (-the source +the document)\n%s", file, diff)
	}
}
