package emulator

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/google/go-cmp/cmp"
)

// The emulator matches the events and patterns of events/rules as AWS's rule engine has, except
// those with numeric matching and an amount of 16 digits or more, or outside of float64.
func TestEmulatorMatchesAsTheRuleEngine(t *testing.T) {
	client := eventbridge.NewFromConfig(emulated(t))
	folder := filepath.Join("..", "..", "..", "events", "rules")
	events, err := os.ReadFile(filepath.Join(folder, "testdata", "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, "testdata", "2.1.0.txt"))
	if err != nil {
		t.Fatal(err)
	}
	differ := map[string]bool{}
	tested := 0
	matched, pattern := map[string][]string{}, ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if name, ok := strings.CutPrefix(line, "  "); ok {
			matched[pattern] = append(matched[pattern], name)
		} else if name, ok := strings.CutSuffix(line, ":"); ok {
			pattern = name
			matched[pattern] = nil
		}
	}
	for pattern, names := range matched {
		file := filepath.Join(folder, pattern+".json")
		if pattern == "numeric-only" {
			file = filepath.Join(folder, "testdata", pattern+".json")
		}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for event := range bytes.Lines(events) {
			tested++
			_, name, _ := strings.Cut(string(event), `"id":"`)
			name, _, _ = strings.Cut(name, `"`)
			out, err := client.TestEventPattern(t.Context(), &eventbridge.TestEventPatternInput{
				Event: aws.String(string(event)), EventPattern: aws.String(string(content))})
			if err != nil {
				t.Fatalf("%s, %s: %v", pattern, name, err)
			}
			want := slices.Contains(names, name)
			if out.Result == want {
				continue
			}
			if pattern != "numeric-only" && pattern != "amount-range" {
				t.Errorf("%s, %s: matches: %t, want %t", pattern, name, out.Result, want)
			}
			differ[strings.TrimPrefix(strings.TrimPrefix(name, "claim check, "), "amount ")] = true
		}
	}
	if len(matched) < 10 || tested < 1000 {
		t.Errorf("only %d patterns and %d tests", len(matched), tested)
	}
	want := []string{"1000.000000000000000001", "1000000.00000000000000001", "12345678901234567.89",
		"123456789012345678901234.5", "1e400", "9007199254740993", "9223372036854775807", "999999.99999999999999999"}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(differ))); diff != "" {
		t.Errorf("numeric matching differs for other amounts (-want +got)\n%s", diff)
	}
}
