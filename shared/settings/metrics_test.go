package settings_test

import (
	"os"
	"strings"
	"testing"

	"payhook.example/shared/settings"
)

func TestTheDocumentListsEveryMetric(t *testing.T) {
	text, err := os.ReadFile("../../functions/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n| metric | value |\n")
	for _, m := range settings.Metrics() {
		if !strings.Contains(table, "`"+m.Name+"`") {
			t.Errorf("the table of functions/README.md lacks %s", m.Name)
		}
	}
}
