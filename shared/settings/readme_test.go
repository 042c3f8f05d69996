package settings_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"payhook.example/shared/settings"
)

// The two tables of infra/README.md must list every setting with its default and its
// section of the interface, and nothing else.
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
	row := regexp.MustCompile("(?m)^\\| ([0-9.]+ )?.*?`([A-Za-z0-9]+)` \\| (`[^`]*`|none|required) \\|")
	documented, sections := map[string]string{}, map[string]string{}
	for _, m := range row.FindAllStringSubmatch(section, -1) {
		if documented[m[2]] != "" {
			t.Errorf("%s is listed twice", m[2])
		}
		sections[m[2]], documented[m[2]] = strings.TrimSpace(m[1]), strings.Trim(m[3], "`")
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
		if got := sections[s.Key]; got != "" && got != s.Section {
			t.Errorf("%s: the section in infra/README.md is %q, want %q", s.Key, got, s.Section)
		}
		delete(documented, s.Key)
	}
	for key := range documented {
		t.Errorf("%s is in infra/README.md but is not a setting", key)
	}
}
