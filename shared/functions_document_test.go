package shared_test

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/signature"
)

const functionsDocument = "functions/README.md"

func TestTheSignedExampleVerifies(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(checkout(t), "functions", "signed-example.json"))
	if err != nil {
		t.Fatal(err)
	}
	var example struct {
		Payload, Timestamp, Signature string
		JWK                           jsontext.Value
	}
	if err := json.Unmarshal(text, &example, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatal(err)
	}
	var id struct {
		Kid string `json:"kid"`
	}
	if err := json.Unmarshal(example.JWK, &id); err != nil {
		t.Fatal(err)
	}
	key, err := keys.ParseJWK(example.JWK, id.Kid, []int{65537})
	if err != nil {
		t.Fatal(err)
	}
	proof := signature.Proof{Timestamp: example.Timestamp, KeyID: id.Kid, Signature: example.Signature}
	if err := signature.Verify(key, []byte(example.Payload), proof); err != nil {
		t.Error(err)
	}
	if err := signature.Verify(key, []byte(example.Payload+" "), proof); !errors.Is(err, signature.ErrMismatch) {
		t.Errorf("with another payload: %v", err)
	}
}

var codeSpanOnly = regexp.MustCompile("`([^` ]+)`")

// rows returns the rows of the table whose header starts with the text: the words
// of code in the first two columns.
func rows(t *testing.T, header string) [][2][]string {
	t.Helper()
	_, after, found := strings.Cut(documents(t)[functionsDocument], "\n"+header)
	if !found {
		t.Fatalf("the document has no table %q", header)
	}
	table, _, _ := strings.Cut(after, "\n\n")
	var all [][2][]string
	for _, line := range strings.Split(table, "\n")[2:] {
		cells := strings.Split(line, " | ")
		if len(cells) < 2 {
			t.Fatalf("a row with %d cells: %s", len(cells), line)
		}
		var row [2][]string
		for i := range row {
			for _, match := range codeSpanOnly.FindAllStringSubmatch(cells[i], -1) {
				row[i] = append(row[i], match[1])
			}
		}
		if status := strings.Trim(cells[0], "| "); row[0] == nil {
			row[0] = []string{status}
		}
		all = append(all, row)
	}
	return all
}

func TestTheDocumentListsEveryOutcome(t *testing.T) {
	want := intake.Answers()
	for _, row := range rows(t, "| status | outcomes in the log |") {
		status, _ := strconv.Atoi(row[0][0]) // 0 for successStatus
		for _, word := range row[1] {
			outcome := intake.Outcome(word)
			answer, ok := want[outcome]
			switch {
			case ok && answer.Status != status:
				t.Errorf("%s is answered %d, and the document says %s", word, answer.Status, row[0][0])
			case !ok && (status == 0 || strings.Contains(word, "-")):
				t.Errorf("%s is not an outcome", word)
			}
			delete(want, outcome)
		}
	}
	for outcome, answer := range want {
		t.Errorf("the document does not list %s (%d %s)", outcome, answer.Status, http.StatusText(answer.Status))
	}
}

// The metrics are the names in the code: of package names, and of the filters of the
// access log.
func TestTheDocumentListsEveryMetric(t *testing.T) {
	code := map[string]bool{}
	for pattern, name := range map[string]*regexp.Regexp{
		"shared/names/*.go":         regexp.MustCompile(`Metric += "(\w+)"`),
		"infra/payhook/endpoint.go": regexp.MustCompile(`(?:notInvoked|forbidden)Metric += "(\w+)"`),
	} {
		files, err := filepath.Glob(filepath.Join(checkout(t), filepath.FromSlash(pattern)))
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, match := range name.FindAllStringSubmatch(string(source), -1) {
				code[match[1]] = true
				found++
			}
		}
		if found < 2 {
			t.Errorf("%s: found %d metrics", pattern, found)
		}
	}
	documented := map[string]bool{}
	for _, row := range rows(t, "| metric | counts |") {
		for _, name := range row[0] {
			if documented[name] {
				t.Errorf("%s is listed twice", name)
			}
			documented[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(code)) {
		if !documented[name] {
			t.Errorf("the document does not list %s", name)
		}
		delete(documented, name)
	}
	for name := range documented {
		t.Errorf("%s is listed and not in the code", name)
	}
}
