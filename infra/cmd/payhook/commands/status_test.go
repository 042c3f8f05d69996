package commands

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/google/go-cmp/cmp"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/stack"
	"payhook.example/shared/ledger"
	"payhook.example/shared/proof"
)

// status runs the command, and returns what it prints and whether all is healthy.
func (w *world) status(flags ...string) (text string, healthy bool) {
	w.t.Helper()
	out, said, status := w.operate(append([]string{"status", "--stack", "Bank", "--region", "r"}, flags...)...)
	if status > cli.StatusFailed {
		w.t.Error(said)
	}
	return out, status == 0
}

// shown is what is read of the JSON.
type shown struct {
	Checks []check
	Oldest []eventState
}

func (w *world) document() (s shown) {
	w.t.Helper()
	text, _ := w.status("--json")
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		w.t.Fatal(err)
	}
	return s
}

func TestEachProblemNeedsAttention(t *testing.T) {
	for name, c := range map[string]struct {
		cause   func(*world)
		verdict string
		line    string
	}{
		"healthy": {func(*world) {}, "healthy",
			"webhooks  ok         17 accepted, 3 × 401 in 15m; 401 in the last 3m: none\n"},
		"alarms": {func(*world) {}, "healthy", "alarms    ok         none of 2 is raised"},
		"alarms of others in the stack": {func(w *world) {
			w.alarms["Payhook_Reports-parked"] = types.StateValueAlarm
			w.alarms["queue-is-full"] = types.StateValueAlarm
		}, "healthy", "none of 2 is raised"},
		"left to redrive, and no alarm": {func(w *world) { w.insert(ledger.Pending, newItem(time.Hour)) }, "healthy",
			"pending   ok         1 event, the oldest for 1h; redrive: it has logged nothing for 3m\n"},
		"under way": {func(w *world) { w.insert(ledger.Pending, newItem(time.Second)) }, "healthy",
			"pending   ok         1 event, the oldest for 1s"},
		"published since": {func(w *world) {
			i := w.insert(ledger.Pending, newItem(time.Hour))
			w.table.Lag(true)
			w.table.Delete(w.t.Context(), i.EventID)
		}, "healthy", "pending   ok         nothing is pending\n"},
		"damaged": {func(w *world) {
			i := newItem(2 * time.Second)
			i.Err = errors.New("no attempts")
			w.insert(ledger.Pending, i)
			w.insert(ledger.Pending, newItem(time.Second))
		}, "NOT HEALTHY", "pending   attention  2 events, the oldest for 2s, 1 damaged; redrive: it has logged " +
			"nothing for 3m\n" +
			"                       payhook logs redrive --since 1h --stack Bank --region r\n"},
		"parked": {func(w *world) {
			w.put(proof.Proof{Reason: proof.Invalid})
			w.put(proof.Proof{Reason: proof.Conflict})
		}, "NOT HEALTHY", "parked    attention  0 events, 1 invalid, 1 conflict open\n"},
		"a parked event": {func(w *world) { w.insert(ledger.Parked, newItem(time.Hour)) }, "NOT HEALTHY",
			"parked    attention  1 event, 0 invalid, 0 conflicts open\n"},
		"a parked event is not pending": {func(w *world) { w.insert(ledger.Parked, newItem(time.Hour)) },
			"NOT HEALTHY", "pending   ok         nothing is pending\n"},
		"a parked claim check": {func(w *world) { w.insert(ledger.Parked, large(newItem(time.Hour))) }, "NOT HEALTHY",
			"1 event, 0 invalid, 0 conflicts open\n"},
		"a parked claim check whose event ends soon": {func(w *world) {
			w.setting = map[string]string{"PAYHOOK_LARGE_EVENT_RETENTION": "20d"}
			w.insert(ledger.Parked, large(newItem(time.Hour)))
		}, "NOT HEALTHY", " (in 19d23h)\n"},
		"anybody can have sent a rejected webhook": {func(w *world) {
			w.put(proof.Proof{Reason: proof.Rejected, Request: &proof.RejectedRequest{Outcome: "x"}})
		}, "healthy", "parked    ok         nothing is open; 1 rejected webhook is stored\n"},
		"a token that ends, and no alarm": {func(w *world) { w.logToken(time.Hour, 244*time.Second, "") }, "healthy",
			"token     ok         valid for 3m"},
		"a token of 5 minutes": {func(w *world) {
			w.logToken(5*time.Minute, 197*time.Second, "")
			w.at.TokenSecret, w.at.TokenParameter = "", "token"
		}, "healthy", "token     ok         valid for"},
		"a token of 5 minutes in a secret": {func(w *world) { w.logToken(5*time.Minute, 197*time.Second, "") },
			"NOT HEALTHY", "                       the lifetime of the token is less than 20 minutes"},
		"a token that has expired since the line": {func(w *world) { w.logToken(time.Hour, 59*time.Second, "") },
			"NOT HEALTHY", "token     attention  there is no valid token\n"},
		"no token": {func(w *world) {
			w.logToken(0, 0, `,"cause":"the secret with the client credentials has no value yet"`)
		}, "NOT HEALTHY", "                       aws secretsmanager put-secret-value --secret-id credentials " +
			"--secret-string file://credentials.json --region r\n"},
		"no token, and why": {func(w *world) {
			w.logToken(0, 0, `,"cause":"the endpoint answered 401 invalid_client"`)
		},
			"NOT HEALTHY", "there is no valid token; the last refresh failed: the endpoint answered 401 " +
				"invalid_client\n"},
		"a refresh that failed": {func(w *world) {
			w.logToken(time.Hour, 30*time.Minute, `,"cause":"the endpoint answered 503"`)
		}, "NOT HEALTHY", "; the last refresh failed: the endpoint answered 503 " +
			"payhook logs token --since 1h --stack Bank --region r"},
		"a store that cannot be read": {func(w *world) {
			w.logOnly("token", `{"msg":"token","outcome":"failed","cause":"the secret: out of time"}`)
		}, "NOT HEALTHY", "it is not known whether there is a valid token; the last refresh failed: the secret: out"},
		"a secret that is marked for deletion": {func(w *world) {
			w.logOnly("token", `{"msg":"token","outcome":"failed","cause":"the secret with the token: `+
				`Secrets Manager GetSecretValue: InvalidRequestException"}`)
		}, "NOT HEALTHY", "infra/RUNBOOK.md, \"What is"},
		"a refresh that worked since": {func(w *world) {
			w.logToken(time.Hour, time.Hour, "")
			w.log("token", -2*time.Minute, `{"msg":"token","cause":"x"}`)
		}, "healthy", "token     ok         valid for 59m"},
		"a token function that does not run": {func(w *world) {
			w.logOnly("token", `{"msg":"token"}`, "START", "REPORT", `{"msg":"else"}`, "{", "x")
		}, "NOT HEALTHY", "token     attention  the token function has logged nothing for 5m\n" +
			"                       payhook logs token --since 1h --all --stack Bank --region r\n"},
		"every answer": {func(w *world) {
			for i, m := range []string{"BadRequest", "Unauthenticated", "SenderNotAllowed", "MethodNotAllowed",
				"Invalid", "NotStored", "KeyUnavailable"} {
				w.metrics["Payhook "+m] = float64(i + 1)
			}
		}, "healthy", "17 accepted, 1 × 400, 2 × 401, 3 × 403, 4 × 405, 5 × 422, 13 × 503 in 15m;"},
		"one stranger at night": {func(w *world) { delete(w.metrics, "Payhook Accepted") }, "healthy",
			"webhooks  ok         0 accepted, 3 × 401 in 15m"},
		"401 by outcome": {func(w *world) {
			w.logOnly("webhook", `{"msg":"webhook","status":401,"outcome":"too long ago"}`,
				`{"msg":"webhook","status":401,"outcome":"signature-invalid"}`,
				`{"msg":"webhook","status":200,"outcome":"accepted"}`, "START")
		}, "healthy", "3 × 401 in 15m; 401 in the last 3m: 1 signature-invalid\n"},
		"no 401, no reading": {func(w *world) {
			delete(w.metrics, "Payhook Unauthenticated")
			w.failing(denied, "logs/webhook")
		}, "healthy", "webhooks  ok         17 accepted in 15m\n"},
		"a part of many 401": {func(w *world) {
			for range 100 {
				w.log("webhook", -time.Minute, `{"msg":"webhook","status":401,"outcome":"key-unknown"}`)
			}
		}, "healthy", "401 in the last 3m: 14 key-unknown, and more that were not read"},
		"redrive fails": {func(w *world) {
			w.insert(ledger.Pending, newItem(time.Hour))
			w.logOnly("redrive", `{"msg":"redrive","cause":"old"}`, `{"msg":"redrive","cause":"PutEvents: denied"}`)
		}, "healthy", "pending   ok         1 event, the oldest for 1h; redrive: PutEvents: denied\n"},
		"redrive works": {func(w *world) {
			w.insert(ledger.Pending, newItem(time.Second))
			w.logOnly("redrive", `{"msg":"redrive","cause":"old"}`, `{"msg":"redrive"}`)
		}, "healthy", "pending   ok         1 event, the oldest for 1s\n"},
		"nothing pending, no reading": {func(w *world) { w.failing(denied, "logs/redrive") }, "healthy",
			"pending   ok         nothing is pending\n"},
		"a stack": {func(*world) {}, "healthy", "stack     ok         UPDATE_COMPLETE\n"},
		"a deployment": {func(w *world) { w.at.Status = "UPDATE_IN_PROGRESS" }, "healthy",
			"stack     ok         UPDATE_IN_PROGRESS\n"},
		"a deployment that failed": {func(w *world) {
			w.at.StackName, w.at.Status = "A b", "UPDATE_ROLLBACK_COMPLETE"
		}, "NOT HEALTHY", "aws cloudformation describe-stack-events --stack-name 'A b' --region r\n"},
		"a rollback that failed": {func(w *world) { w.at.Status = "UPDATE_ROLLBACK_FAILED" },
			"NOT HEALTHY", "stack     attention  UPDATE_ROLLBACK_FAILED\n"},
		"a stack that is deleted": {func(w *world) { w.at.Status = "DELETE_IN_PROGRESS" },
			"NOT HEALTHY", "infra/RUNBOOK.md, \"Delete a stack and use its data again\"\n"},
		"an alarm": {func(w *world) {
			w.alarms["Payhook-refused"] = types.StateValueAlarm
		}, "NOT HEALTHY", " (1h ago). Payhook-refused is bad: `payhook keys --stack Bank --region r`. " +
			"Fix it with `payhook logs --since 1h --stack Bank --region r` and `aws x y --region r`."},
		"an alarm of what is parked": {func(w *world) {
			w.alarms["Payhook-parked"] = types.StateValueAlarm
			w.put(proof.Proof{Reason: proof.Invalid})
		}, "NOT HEALTHY", " (1h ago). Payhook-parked is bad:"},
		"an alarm of what was decided": {func(w *world) {
			w.alarms["Payhook-parked"] = types.StateValueAlarm
			w.put(proof.Proof{Reason: proof.Conflict})
		}, "NOT HEALTHY", " (1h ago). Nothing is open any more.\n"},
		"an alarm of a conflict": {func(w *world) {
			w.alarms["Payhook-conflicts"] = types.StateValueAlarm
			w.put(proof.Proof{Reason: proof.Conflict})
		}, "NOT HEALTHY", " (1h ago). Payhook-conflicts is bad:"},
		"an alarm of what was published": {func(w *world) {
			w.alarms["Payhook-oldest-pending"] = types.StateValueAlarm
		}, "NOT HEALTHY", " (1h ago). Nothing is pending any more. Payhook-oldest-pending is bad:"},
		// Nothing is healthy by default.
		"no metrics": {func(w *world) { w.metrics = nil }, "healthy", "webhooks  ok         0 accepted in 15m"},
		"no alarms":  {func(w *world) { w.alarms = nil }, "UNKNOWN", "alarms    not measured"},
		"an alarm without data": {func(w *world) { w.alarms["Payhook-parked"] = types.StateValueInsufficientData },
			"UNKNOWN", "alarms    not measured  without data: parked"},
		"an alarm that is gone": {func(w *world) { w.alarms["Payhook-gone"] = "" }, "NOT HEALTHY",
			"alarms    attention  missing: gone\n"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c.cause(w)
			out, healthy := w.status()
			for _, c := range w.document().Checks {
				if c.Next == "" && c.Condition != ok {
					t.Errorf("what comes next: %+v", c)
				}
			}
			words := strings.Join(strings.Fields(out), " ") // where it wraps does not matter
			if !strings.Contains(out, "\n"+c.verdict+"\n") || !strings.Contains(out+words, c.line) ||
				healthy != (c.verdict == "healthy") {
				t.Errorf("healthy: %t\n%s", healthy, out)
			}
		})
	}
}

func TestAPartThatFailsHidesNoOther(t *testing.T) {
	for name, c := range map[string]struct {
		cause func(*world)
		want  string // the line of the part
	}{
		"Query of pending": {nil, "pending: "},
		"no bucket": {func(w *world) {
			w.parking.Fails = func(context.Context, string, string) error { return errors.New("down") }
		}, "parked: "},
		"logs/token":   {nil, "token: "},
		"logs/webhook": {nil, "webhooks: "},
		"logs/redrive": {func(w *world) { w.insert(ledger.Pending, newItem(time.Second)) },
			"pending: "},
		"GetMetricData":      {nil, "webhooks: "},
		"DescribeAlarms":     {nil, "alarms: "},
		"ListStackResources": {nil, "alarms: "},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if w.failing(denied, name); c.cause != nil {
				c.cause(w)
			}
			if text, healthy := w.status(); healthy || !strings.Contains(text, "\nUNKNOWN\n") {
				t.Errorf("healthy: %t\n%s", healthy, text)
			}
			var lines, bad []string
			for _, line := range w.document().Checks {
				lines = append(lines, line.Name)
				if line.Condition != ok {
					bad = append(bad, line.Name+": "+line.Text)
				}
			}
			for _, line := range []string{"pending", "parked", "token", "webhooks", "alarms"} {
				if !slices.Contains(lines, line) {
					t.Errorf("%s is hidden", line)
				}
			}
			if len(bad) != 1 || !strings.HasPrefix(bad[0], c.want) {
				t.Errorf("not ok: %q, want one that begins with %q", bad, c.want)
			}
		})
	}
}

// What does not exist any more is no measurement that failed.
func TestWhatIsMissingNeedsAttention(t *testing.T) {
	for _, test := range []struct{ code, of, want string }{
		{"ResourceNotFoundException", "DynamoDB", "Restore the ledger"}, {"NoSuchBucket", "S3", "What is lost"},
		{"ResourceNotFoundException", "logs/token", "What is lost"}, {"AccessDeniedException", "DynamoDB", ""},
	} {
		t.Run(test.code+" "+test.of, func(t *testing.T) {
			w := newWorld(t)
			w.failing(test.code, test.of)
			w.change = func(s *connected) {
				switch deployed := connect(s.Stack); test.of {
				case "DynamoDB":
					s.ledger = deployed.ledger
				case "S3":
					s.parking = deployed.parking
				}
			}
			out, _ := w.status()
			out = strings.Join(strings.Fields(out), " ")
			if test.want == "" {
				if !strings.Contains(out, " UNKNOWN NAME") || !strings.Contains(out, "Sid names Status") {
					t.Error(out)
				}
			} else if !strings.Contains(out, " NOT HEALTHY NAME") || strings.Contains(out, "not measured") ||
				!strings.Contains(out, "infra/RUNBOOK.md, \""+test.want) {
				t.Error(out)
			}
		})
	}
}

// The sections of the runbook that status names exist.
func TestTheRunbookHasTheSections(t *testing.T) {
	runbook, err := os.ReadFile("../../../RUNBOOK.md")
	source, failed := os.ReadFile("status.go")
	if err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	text := regexp.MustCompile(`" \+\n\t+"`).ReplaceAllString(string(source), "")
	sections := regexp.MustCompile(`RUNBOOK.md, \\"(.+?)\\"`).FindAllStringSubmatch(text, -1)
	for _, section := range sections {
		if !strings.Contains(string(runbook), "\n### "+section[1]+"\n") {
			t.Errorf("no section %s", section[1])
		}
	}
	if len(sections) != 3 {
		t.Errorf("%q", sections)
	}
}

// Whatever the alarm, the person who reads it has called status, and can copy the commands.
func TestAdviceCanBeCopied(t *testing.T) {
	all, err := os.ReadFile("../../../payhook/alarms.txt")
	if err != nil {
		t.Fatal(err)
	}
	n, target := 0, stack.Stack{StackName: "Bank", Region: "r"}
	for text := range strings.SplitSeq(string(all), "\n\n") {
		name, text, _ := strings.Cut(strings.TrimPrefix(text, "# "), "\n")
		d := screen{p: &program{Program: &cli.Program{Target: target}}}
		c := d.raised(name, types.MetricAlarm{AlarmDescription: new(strings.ReplaceAll(text, "\n", " "))}, time.Now())
		for _, line := range append(wrap(c.Text), wrap(c.Next)...) {
			for i, command := range strings.Split(line, "`") {
				isOurs, isAWS := strings.Contains(command, "payhook "), strings.Contains(command, "aws ")
				n += i % 2
				wrong := isOurs && !strings.HasSuffix(command, " --stack Bank --region r") ||
					isAWS && !strings.HasSuffix(command, " --region r")
				if i%2 == 1 && wrong || strings.Contains(command, "payhook status") {
					t.Errorf("%s: %s", name, line)
				}
			}
		}
	}
	if n < 20 {
		t.Errorf("%d commands", n)
	}
}

func TestInterruptedStatusShowsNothing(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.ctx = ctx
	if out, _, status := w.operate("status"); status != cli.StatusInterrupted || out != "" {
		t.Errorf("%d: %s", status, out)
	}
}

func TestOutputsAreShownWithTheirMeaning(t *testing.T) {
	w := newWorld(t)
	w.at.Outputs = []stack.Output{{Name: "EventBusName", Value: "bus-1", Meaning: "the bus"},
		{Name: "Text", Value: "one\n  \x1btwo\n", Meaning: "for people"}}
	if out, _ := w.expect(0, "status", "--outputs"); out != "NAME          MEANING  VALUE\n"+
		"EventBusName  the bus  bus-1\n\nText: for people\n\none\n  \\u001btwo\n" {
		t.Error(out)
	}
}

func large(i ledger.Item) ledger.Item {
	i.Large = true
	return i
}

// The oldest events are listed that are left to redrive.
func TestTheOldestEventsAreListed(t *testing.T) {
	w := newWorld(t)
	for range mostListed {
		w.insert(ledger.Pending, newItem(time.Second))
	}
	none, _ := w.status()
	old := newItem(2 * time.Second)
	old.Attempts = 1
	old = w.insert(ledger.Pending, old)
	out, _ := w.status()
	want := []eventState{eventOf(old)}
	got := w.document().Oldest
	if !cmp.Equal(got, want) || !strings.Contains(out, old.EventID+"  "+old.DeliveryID) ||
		!strings.Contains(out, "\nleft to redrive\nRECORDEDAT") || strings.Contains(none, "left to redrive") {
		t.Errorf("%+v, want %+v\n%s", got, want, out)
	}
}
