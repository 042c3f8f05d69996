package settings_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"payhook.example/shared/settings"
)

// The two tables of infra/README.md must list every setting with its default, and
// nothing else.
func TestTheDocumentListsEverySetting(t *testing.T) {
	text, err := os.ReadFile("../../infra/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "\n## Settings\n")
	if !ok {
		t.Fatal("infra/README.md has no section Settings")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	row := regexp.MustCompile("(?m)^\\|.*?`([A-Za-z0-9]+)` \\| (`[^`]*`|none|required) \\|")
	documented := map[string]string{}
	for _, m := range row.FindAllStringSubmatch(section, -1) {
		if documented[m[1]] != "" {
			t.Errorf("%s is listed twice", m[1])
		}
		documented[m[1]] = strings.Trim(m[2], "`")
	}
	for _, s := range settings.All() {
		want := s.Default
		switch {
		case s.Required:
			want = "required"
		case want == "":
			want = "none"
		}
		if got := documented[s.Key]; got != want {
			t.Errorf("%s: the default in infra/README.md is %q, want %q", s.Key, got, want)
		}
		delete(documented, s.Key)
	}
	for key := range documented {
		t.Errorf("%s is in infra/README.md but is not a setting", key)
	}
}
