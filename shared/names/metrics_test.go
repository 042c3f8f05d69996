package names_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"payhook.example/shared/names"
)

func TestTheDocumentListsEveryMetric(t *testing.T) {
	text, err := os.ReadFile("../../functions/README.md")
	if err != nil {
		t.Fatal(err)
	}
	table := "| metric | value |\n|---|---|\n"
	for _, m := range names.Metrics() {
		table += fmt.Sprintf("| `%s` | %s |\n", m.Name, m.Meaning)
	}
	if !strings.Contains(string(text), "\n"+table) {
		t.Errorf("functions/README.md lacks this table:\n%s", table)
	}
}
