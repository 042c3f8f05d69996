package commands

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"
	"uuid"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/ledger"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/proof"
	"payhook.example/shared/wire"
)

const invalidName = "invalid/2026/01/31/12/20260131T120000.000Z-unknown-00000000000000000000000000000000.json"

func TestWrongCallSaysWhatIsWrong(t *testing.T) {
	conflict, rejected := strings.ReplaceAll(invalidName, "invalid", "conflict"),
		"rejected/2026/01/31/12/20260131T120000.000Z-unknown-AAAAAAAAAAAAAAAAAAAAAAAAAA.json"
	id := uuid.New().String()
	for call, says := range map[string]string{
		"keys --local --region eu-north-1":                 "cannot be used with --local",
		"parked list extra":                                `"extra"`,
		"parked list --from yesterday":                     "24h",
		"parked list --from -5m":                           "how long ago",
		"parked list --kind bad":                           "event, invalid, conflict, rejected",
		"parked list --event 7":                            "UUID",
		"parked list --delivery 7":                         "UUID",
		"parked list --event " + id + " --delivery " + id:  "cannot be used together",
		"parked list --kind rejected --event " + id:        "are not known",
		"parked list --state maybe":                        "open, replayed, dismissed, any",
		"parked show":                                      "takes NAME",
		"parked show " + invalidName + " --payload --json": "cannot be used with --json",
		"replay":                                    "names are missing",
		"replay --all " + invalidName:               "cannot be used with names",
		"replay --kind invalid " + invalidName:      "are used with --all",
		"replay " + invalidName + " " + conflict:    "choose with --content",
		"replay --content second " + conflict:       "first, parked",
		"replay --all --content parked":             "by its name",
		"replay --all --kind conflict":              "by its name",
		"replay " + rejected:                        "--reason is missing",
		"replay --reason= --accept-age " + rejected: "--reason is missing",
		"dismiss --reason why":                      "names are missing",
		"dismiss " + invalidName:                    "--reason is missing",
		"dismiss --all":                             "--reason is missing",
		"event 7":                                   "must be a UUID",
		"keys misses#1 --drop":                      "must be a UUID",
		"keys --drop":                               "takes ID",
		"keys --drop " + id:                         "--reason is missing",

		"explain -c foo=1":                                       "-c foo=1: foo: ",
		"explain -c foo":                                         `-c foo: "foo" must be KEY=VALUE`,
		"explain -c nothing=1":                                   "-c nothing=1",
		"explain --key-id nope":                                  "--key-id nope: must be a UUID",
		"explain -c baseUrl=http://a.example":                    "-c baseUrl=http://a.example: must be an https URL",
		"explain -c timestampTolerance=1x":                       "-c timestampTolerance=1x: must be",
		"explain -c archiveRetention=1d":                         "archiveRetention cannot be set here",
		"explain -c signatureHeader=A -c keyIdLocation=header:a": "-c keyIdLocation=header:a: must differ",

		"reconcile":                                     "takes FILE",
		"reconcile missing":                             "no such file",
		"reconcile - --by amount":                       "must be one of eventId",
		"reconcile - --by paymentRequestId":             "--from",
		"reconcile - --by deliveryId":                   "--from",
		"reconcile - --from 2026-01-31":                 "the setting evidence is off",
		"reconcile - --to 2026-01-31":                   "--to needs --from",
		"reconcile - --from 2026-02-01 --to 2026-01-31": "--from is after --to",
		"reconcile - --column x":                        `no column "x"`,

		"logs wehook":                  `invalid argument "wehook" for "payhook logs"`,
		"logs token":                   "the stack has no function token",
		"logs --since=soon":            `invalid argument "soon" for "--since" flag: must be a duration such as 90s`,
		"logs --since=-1h":             `invalid argument "-1h" for "--since" flag: must be a duration`,
		"logs --not-accepted --follow": "--not-accepted takes no",
		"logs --not-accepted webhook":  "--not-accepted takes no",
		"logs --not-accepted --all":    "--not-accepted takes no",

		"evidence verify a b":                      "accepts at most 1 arg",
		"evidence verify --keys missing":           "open missing",
		"evidence verify":                          "evidence is off",
		"evidence find " + id:                      "evidence is off",
		"evidence find " + id + " --to 2026-02-01": "--to needs --from",
		"evidence find " + id + " --from noon":     "must be as",
		"evidence find x":                          "must be a UUID",
	} {
		t.Run(call, func(t *testing.T) {
			w := newWorld(t)
			delete(w.at.Logs, "token")
			w.answer = strings.NewReader(id)
			out, err := w.expect(cli.StatusUsage, strings.Fields(call)...)
			w.contains(err, says, "payhook: ")
			if out != "" || len(w.requests) > 0 {
				t.Errorf("wrote %q, invoked %v", out, w.requests)
			}
		})
	}
}

func TestErrorOfAWSIsNotAnEmptyAnswer(t *testing.T) {
	id := uuid.New().String()
	for _, call := range []string{
		"parked list", "parked list --kind event", "parked list --kind rejected", "parked list --event " + id,
		"parked list --kind event --delivery " + id, "parked list --delivery " + id, "parked show " + invalidName,
		"parked show inv", "parked show invalid/2026", "parked show " + id, "event " + id, "keys " + id,
		"keys --reason why --drop " + id, "replay --all", "replay 0b7e", "dismiss --all --reason why", "keys",
	} {
		w := newWorld(t)
		w.change = func(s *connected) { *s = *connect(s.Stack) }
		w.redrive = func(wire.RedriveRequest) string { return "" }
		w.failing("InternalServerError", "^(DynamoDB|S3) ")
		out, err := w.expect(cli.StatusUnreachable, strings.Fields(call)...)
		if out != "" || !strings.HasPrefix(err, "payhook: ") {
			t.Errorf("%s: %q, %q", call, out, err)
		}
	}
}

// No command shows what is in a payload, but for the one flag that asks for it.
func TestNoPayloadIsShownUnlessAskedFor(t *testing.T) {
	w := newWorld(t)
	event := w.insert(ledger.Parked, newItem(time.Hour))
	name, delivery := w.park(time.Hour, proof.Invalid)
	rejected := w.rejected(delivery.Payload, len(delivery.Payload))
	for _, call := range []string{
		"parked list", "parked list --kind rejected", "parked show " + name, "parked show " + event.EventID,
		"parked show " + rejected, "event " + event.EventID, "replay --all --yes",
	} {
		for _, flag := range []string{"", " --json"} {
			out, err, _ := w.operate(strings.Fields(call + flag)...)
			for _, secret := range []string{secretAmount, base64.StdEncoding.EncodeToString(delivery.Payload),
				base64.StdEncoding.EncodeToString(event.Detail)} {
				if strings.Contains(out+err, secret) {
					t.Errorf("%s%s shows it:\n%s%s", call, flag, out, err)
				}
			}
		}
	}
	for name, want := range map[string][]byte{name: delivery.Payload, event.EventID: event.Detail,
		rejected: delivery.Payload} {
		if out, _ := w.expect(0, "parked", "show", name, "--payload"); out != string(want) {
			t.Errorf("%s: %q", name, out)
		}
	}
	large := w.rejected(nil, proof.MaxRejectedPayload+1)
	_, said := w.expect(cli.StatusFailed, "parked", "show", large, "--payload")
	w.contains(said, "it has 262145 bytes")
}

// conflict returns a delivery in which an event is 9250.00, and which is in conflict with a first content.
func (w *world) conflict(id string, first ledger.Item) (name string, p proof.Proof) {
	w.t.Helper()
	event := paymentOf(id, "9250.00")
	digest := ledger.DigestOf(event.Bytes)
	return w.park(time.Minute, proof.Conflict, func(p *proof.Proof) {
		p.EventIDs = []string{id}
		p.Contents = []proof.Content{{EventID: id, Digest: digest[:], Amount: event.Amount, Currency: event.Currency,
			First: proof.First{DeliveryID: first.DeliveryID, Digest: first.Digest[:], Amount: first.Amount,
				Currency: first.Currency, RecordedAt: first.RecordedAt, State: string(first.State)}}}
		p.Payload = paymenttest.RawDelivery(p.DeliveryID, event.Bytes)
	})
}

// published publishes an event of 100.00.
func (w *world) published() ledger.Item {
	return w.insert(ledger.Published,
		ledger.NewItem(paymentOf(uuid.New().String(), "100.00"), uuid.New().String(), noon.Add(-time.Hour)))
}
