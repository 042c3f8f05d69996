package shared_test

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/payment"
	"payhook.example/shared/signature"
)

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
	key, err := keys.ParseJWK(example.JWK, id.Kid)
	if err != nil {
		t.Fatal(err)
	}
	proof := signature.Parts{Timestamp: example.Timestamp, KeyID: id.Kid, Signature: example.Signature}
	if err := signature.Verify(key, []byte(example.Payload), proof); err != nil {
		t.Error(err)
	}
	if err := signature.Verify(key, []byte(example.Payload+" "), proof); !errors.Is(err, signature.ErrMismatch) {
		t.Errorf("with another payload: %v", err)
	}
}

func TestTheDocumentListsEveryOutcome(t *testing.T) {
	_, table, found := strings.Cut(documents(t)["functions/README.md"], "\n| status | outcomes in the log |\n")
	if !found {
		t.Fatal("the document has no table of outcomes")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	want := intake.Outcomes()
	for _, line := range strings.Split(table, "\n")[1:] {
		cells := strings.Split(line, " | ")
		status, _ := strconv.Atoi(strings.Trim(cells[0], "| `")) // 0 for successStatus
		for _, match := range regexp.MustCompile("`([^` ]+)`").FindAllStringSubmatch(cells[1], -1) {
			word := match[1]
			outcome, ok := want[word]
			switch {
			case ok && outcome.Status != status:
				t.Errorf("%s is answered %d, and the document says %s", word, outcome.Status, cells[0])
			case !ok && (status == 0 || strings.Contains(word, "-")):
				t.Errorf("%s is not an outcome", word)
			}
			delete(want, word)
		}
	}
	for name, outcome := range want {
		t.Errorf("the document does not list %s (%d %s)", name, outcome.Status, http.StatusText(outcome.Status))
	}
}

// The page of the interface names each setting that depends on the service, and its examples are valid.
func TestTheInterfaceIsThatOfTheCode(t *testing.T) {
	page := documents(t)["functions/INTERFACE.md"]
	rows := regexp.MustCompile("(?m)^\\| `([^`]+)` .*§([0-9.]*[0-9])").
		FindAllStringSubmatch(documents(t)["infra/README.md"], -1)
	if len(rows) < 15 {
		t.Errorf("%d settings name a section", len(rows))
	}
	for _, row := range rows {
		section := regexp.MustCompile(`(?m)^#+ (.* )?` + row[2] + `\.? |\(` + row[2] + `\):`)
		if !strings.Contains(page, "`"+row[1]+"`") || !section.MatchString(page) {
			t.Errorf("%s or its section %s is missing", row[1], row[2])
		}
	}
	_, after, _ := strings.Cut(page, "### 2.3 ")
	_, after, _ = strings.Cut(after, "```json\n")
	example, _, _ := strings.Cut(after, "```")
	if _, err := payment.DecodeRawEvent([]byte(example)); err != nil {
		t.Error(err)
	}
}
