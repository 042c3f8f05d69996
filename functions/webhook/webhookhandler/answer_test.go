package webhookhandler

import (
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/intake"
	"payhook.example/shared/settings"
)

// What the service is told, what alarms count and at which level it is logged depends on
// the outcome alone. A forger learns nothing: what is not authentic has one answer.
func TestEveryOutcomeHasItsAnswer(t *testing.T) {
	unauthentic := []intake.Outcome{intake.SignatureMissing, intake.SignatureRepeated, intake.SignatureMalformed,
		intake.TimestampOutside, intake.KeyUnknown, intake.KeyRefused, intake.SignatureMismatch, intake.KeyRevoked}
	for _, reason := range clientcert.Reasons() {
		unauthentic = append(unauthentic, intake.CertificateOutcome(reason))
	}
	one := answer{status: 401, detail: "The webhook is not authentic.", metric: settings.UnauthenticatedMetric,
		level: slog.LevelWarn}
	outcomes := intake.Outcomes()
	if len(outcomes) != len(unauthentic)+14 {
		t.Errorf("%d outcomes", len(outcomes))
	}
	for name, outcome := range outcomes {
		a, ok := answerTo(outcome, 299), false
		before := false // whoever sent it has proven nothing
		switch a.status {
		case 299:
			ok = outcome == intake.Accepted || outcome == intake.Conflict
		case 401:
			before, ok = true, a == one && slices.Contains(unauthentic, outcome)
		case 503:
			before = outcome == intake.KeyOutOfBudget || outcome == intake.KeyUnavailable
			ok = a.retryAfter > 0 && a.level == slog.LevelError && a.detail != ""
		default:
			before = a.status == 400 || a.status == 405
			ok = a.status > 399 && a.retryAfter == 0 && (a.detail == "") == (outcome == intake.Invalid)
		}
		if !ok || outcome.Name != name || outcome.BeforeProof != before || outcome.Unavailable != (a.status == 503) ||
			outcome.OfReplay || !slices.Contains(settings.Metrics(), a.metric) {
			t.Errorf("%+v: %+v", outcome, a)
		}
	}
	// The sender must send again what has none.
	for _, none := range []intake.Outcome{intake.ContentMissing, intake.StillPending, intake.DigestMismatch, {}} {
		if answerTo(none, 200) != answers[intake.LedgerUnavailable] || none.OfReplay != (none.Name != "") {
			t.Errorf("%+v: %+v", none, answerTo(none, 200))
		}
	}
}

func TestTheDocumentListsEveryOutcome(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	_, table, found := strings.Cut(string(text), "\n| status | outcomes in the log |\n")
	if !found {
		t.Fatal("the document has no table of outcomes", err)
	}
	table, _, _ = strings.Cut(table, "\n\n")
	want := intake.Outcomes()
	for _, line := range strings.Split(table, "\n")[1:] {
		cells := strings.Split(line, " | ")
		status, _ := strconv.Atoi(strings.Trim(cells[0], "| `")) // 0 for successStatus
		for _, match := range regexp.MustCompile("`([^` ]+)`").FindAllStringSubmatch(cells[1], -1) {
			outcome, ok := want[match[1]]
			switch {
			case ok && answerTo(outcome, 0).status != status:
				t.Errorf("%s is answered %d, and the document says %s", outcome, answerTo(outcome, 0).status, cells[0])
			case !ok && (status == 0 || strings.Contains(match[1], "-")):
				t.Errorf("%s is not an outcome", match[1])
			}
			delete(want, match[1])
		}
	}
	if len(want) > 0 {
		t.Errorf("the document does not list %v", want)
	}
}
