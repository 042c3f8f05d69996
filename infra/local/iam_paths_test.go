package local

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/claimcheck"
	"payhook.example/shared/intake"
	"payhook.example/shared/ledger"
	"payhook.example/shared/parking"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/refused"
	"payhook.example/shared/signature"
	"payhook.example/shared/token"
)

// The tests write into the stack's tables and buckets as root, past the proxy.

func (f *fixture) buckets() *s3.Client {
	return s3.NewFromConfig(f.AWS, func(o *s3.Options) { o.UsePathStyle = true })
}

func (f *fixture) store() *parking.Store { return parking.NewStore(f.buckets(), f.ParkingBucket) }

func (f *fixture) ledger() *ledger.Ledger {
	return ledger.New(dynamodb.NewFromConfig(f.AWS), f.LedgerTable, f.Bus, ledger.Options{})
}

// item returns what the ledger knows of an event.
func (f *fixture) item(ctx context.Context, eventID string) (ledger.Item, error) {
	item, _, err := ledger.NewInspector(dynamodb.NewFromConfig(f.AWS), f.LedgerTable).Find(ctx, eventID)
	return item, err
}

// post sends a delivery with the service's present key, and returns an error
// unless it is answered with that status.
func (f *fixture) post(ctx context.Context, payload []byte, status int) (a answer, err error) {
	got, err := f.service.Send(ctx, paymenttest.Webhook{URL: f.WebhookURL, Payload: payload})
	if err != nil {
		return a, err
	}
	a.status = got.Status
	if err := json.Unmarshal(got.Body, &a); err != nil || got.Status != status {
		return a, fmt.Errorf("answered %d %s, want %d", got.Status, got.Body, status)
	}
	return a, nil
}

// large returns an event that is too large for the bus.
func large() []byte {
	return fmt.Appendf(nil, `{"eventName":"PAYMENT_STATUS.RELEASED","eventId":"%s",`+
		`"eventTimestamp":"2026-01-31T12:00:00.120Z","eventData":{"amount":1.00,"note":"%s"}}`,
		uuid.New().String(), bytes.Repeat([]byte("x"), 260_000))
}

// webhookPaths are the paths of the webhook function.
func (f *fixture) webhookPaths() []path {
	parked := func(ctx context.Context, deliveryID string) error {
		names, err := f.store().FindDelivery(ctx, deliveryID)
		if err == nil && len(names) != 1 {
			err = wrong("parked under", names)
		}
		return err
	}
	return []path{
		{"a delivery is accepted and published, and again a duplicate", func(ctx context.Context) error {
			event := paymenttest.Event()
			if _, err := f.post(ctx, paymenttest.Delivery(event), http.StatusOK); err != nil {
				return err
			}
			if item, err := f.item(ctx, event.EventID); err != nil || item.PublishedAt.IsZero() {
				return errors.Join(wrong("not published", item), err)
			}
			a, err := f.post(ctx, paymenttest.Delivery(event), http.StatusOK)
			if err == nil && a.Duplicates != 1 {
				err = wrong("no duplicate", a)
			}
			return err
		}},
		{"two events are recorded and marked in batches", func(ctx context.Context) error {
			events := paymenttest.Events(2)
			if _, err := f.post(ctx, paymenttest.Delivery(events...), http.StatusOK); err != nil {
				return err
			}
			item, err := f.item(ctx, events[1].EventID)
			if err == nil && item.PublishedAt.IsZero() {
				err = wrong("not published", item)
			}
			return err
		}},
		{"a new key is fetched with a token that is new as well", func(ctx context.Context) error {
			// The function may still hold the token that is revoked.
			f.service.RevokeTokens()
			if run, err := f.runToken(ctx, refreshNow); err != nil || run.Outcome != token.Refreshed {
				return errors.Join(wrong("no new token", run), err)
			}
			f.service.Rotate()
			_, err := f.post(ctx, paymenttest.Delivery(paymenttest.Event()), http.StatusOK)
			return err
		}},
		{"a large event goes to S3", func(ctx context.Context) error {
			event := large()
			if _, err := f.post(ctx, paymenttest.RawDelivery(uuid.New().String(), event), http.StatusOK); err != nil {
				return err
			}
			raw, err := payment.DecodeRawEvent(event)
			if err != nil {
				return err
			}
			out, err := f.buckets().ListObjectsV2(ctx, &s3.ListObjectsV2Input{
				Bucket: aws.String(f.outputs["ClaimBucket"]), Prefix: aws.String("events/" + raw.EventID + "/"),
			})
			if err == nil && len(out.Contents) != 1 {
				err = wrong("objects", len(out.Contents))
			}
			return err
		}},
		{"an invalid delivery is parked", func(ctx context.Context) error {
			event, id := paymenttest.Event(), uuid.New().String()
			event.EventName = "no status"
			if _, err := f.post(ctx, paymenttest.RawDelivery(id, paymenttest.Encode(event)),
				http.StatusUnprocessableEntity); err != nil {
				return err
			}
			return parked(ctx, id)
		}},
		{"a conflict is parked", func(ctx context.Context) error {
			_, err := f.parkConflict(ctx)
			return err
		}},
		{"a rejected webhook is captured", func(ctx context.Context) error {
			store := refused.NewStore(f.buckets(), f.ParkingBucket)
			before, err := store.List(ctx)
			if err != nil {
				return err
			}
			got, err := f.service.Send(ctx, paymenttest.Webhook{URL: f.WebhookURL,
				Payload: paymenttest.Delivery(paymenttest.Event()), Flaw: paymenttest.SignatureChanged})
			if err != nil || got.Status != http.StatusUnauthorized {
				return errors.Join(wrong("not rejected", got.Status), err)
			}
			after, err := store.List(ctx)
			if err == nil && len(after) != len(before)+1 {
				err = wrong("captured", len(after)-len(before))
			}
			return err
		}},
	}
}

// pendingEvent writes an event as pending, due at the time given, and returns its id.
// One that is corrupt can't be published.
func (f *fixture) pendingEvent(ctx context.Context, due time.Time, corrupt bool) (string, error) {
	event := paymenttest.Event()
	raw, err := payment.DecodeRawEvent(paymenttest.Encode(event))
	if err != nil {
		return "", err
	}
	e := ledger.NewEntry(raw, uuid.New().String(), time.Now())
	if corrupt {
		e.Digest[0]++
	}
	r := f.ledger().Record(ctx, []ledger.Entry{e}, ledger.NewHolder(), due)[0]
	if r.Err == nil && r.Outcome != ledger.Recorded {
		r.Err = wrong("not recorded", r.Outcome)
	}
	return e.EventID, r.Err
}

// park parks a delivery that is valid by now, as after a fix, and returns its
// name.
func (f *fixture) park(ctx context.Context, events ...[]byte) (string, error) {
	id := uuid.New().String()
	payload := paymenttest.RawDelivery(id, events...)
	key, at := f.service.Key(), time.Now().UTC().Format("2006-01-02T15:04:05.000Z")
	proof, err := signature.Sign(key.Private, payload, at, key.ID)
	if err != nil {
		return "", err
	}
	name, _, err := f.store().Park(ctx, parking.Parked{
		Reason: parking.Invalid, Cause: "test", ParkedAt: time.Now(), Bus: f.Bus, DeliveryID: id,
		Payload: payload, Timestamp: at, KeyID: key.ID, Signature: proof, JWK: key.JWK(),
	})
	return name, err
}

// parkEvent parks an event as one that could not be published, as a claim check if large, and
// returns its name and its id.
func (f *fixture) parkEvent(ctx context.Context, large bool) (name, id string, err error) {
	event := paymenttest.Event()
	text := paymenttest.Encode(event)
	digest := ledger.DigestOf(text)
	if large {
		raw, err := payment.DecodeRawEvent(text)
		if err != nil {
			return "", "", err
		}
		if text, err = claimcheck.NewStore(f.buckets(), f.claimBucket).Put(ctx, raw, digest); err != nil {
			return "", "", err
		}
	}
	name, _, err = f.store().Park(ctx, parking.Parked{
		Reason: parking.Unpublishable, ParkedAt: time.Now(), Bus: f.Bus, DeliveryID: uuid.New().String(),
		EventIDs: []string{event.EventID},
		Event:    text, Digest: digest[:], Claimed: large, RecordedAt: time.Now(), Attempts: 20,
	})
	return name, event.EventID, err
}

// parkConflict has the webhook function park a delivery in conflict, and returns
// its name.
func (f *fixture) parkConflict(ctx context.Context) (string, error) {
	event, id := paymenttest.Event(), uuid.New().String()
	if _, err := f.post(ctx, paymenttest.Delivery(event), http.StatusOK); err != nil {
		return "", err
	}
	event.EventData.Amount = "9250.00"
	if a, err := f.post(ctx, paymenttest.RawDelivery(id, paymenttest.Encode(event)), http.StatusOK); err != nil ||
		a.Conflicts != 1 {
		return "", errors.Join(wrong("no conflict", a), err)
	}
	names, err := f.store().FindDelivery(ctx, id)
	if err == nil && len(names) != 1 {
		err = wrong("parked under", names)
	}
	if err != nil {
		return "", err
	}
	return names[0], nil
}

// noName is the name of no parked object.
const noName = "2026/01/31/12/20260131T120000.000Z-invalid-none.json"

// runRedrive runs the redrive function until an item is as it must be. A run of
// the schedule may hold the item meanwhile.
func (f *fixture) runRedrive(ctx context.Context, id string, right func(ledger.Item) bool) error {
	for deadline := time.Now().Add(waitTimeout); ; {
		var ran any
		failed := f.invoke(ctx, "redrive", "{}", &ran) // as it does if an item is corrupt
		item, err := f.item(ctx, id)
		if err != nil || right(item) {
			return err
		}
		if len(f.proxy.denied()) > 0 || time.Now().After(deadline) {
			return errors.Join(wrong("the item is", item), failed)
		}
		// What a run failed to lease or to mark is due again soon.
		time.Sleep(100 * time.Millisecond)
	}
}

// decide has the redrive function replay or settle what is parked under a name,
// and returns the outcome and the cause.
func (f *fixture) decide(ctx context.Context, name string, request map[string]any) (outcome, cause string, err error) {
	var out struct {
		Replayed, Settled []struct{ Name, Outcome, Cause string }
	}
	text, err := json.Marshal(request)
	if err != nil {
		return "", "", err
	}
	if err := f.invoke(ctx, "redrive", string(text), &out); err != nil {
		return "", "", err
	}
	all := append(out.Replayed, out.Settled...)
	if len(all) != 1 || all[0].Name != name {
		return "", "", wrong("decided about", out)
	}
	return all[0].Outcome, all[0].Cause, nil
}

// replayed returns an error unless a replay in a version is accepted and leaves
// what is parked in that state.
func (f *fixture) replayed(ctx context.Context, name string, version intake.Version, want parking.State) error {
	outcome, cause, err := f.decide(ctx, name, map[string]any{"replay": []string{name}, "version": version})
	if err != nil || outcome != string(intake.Accepted) || cause != "" {
		return errors.Join(wrong("replayed as", outcome+" "+cause), err)
	}
	return f.inState(ctx, name, want)
}

func (f *fixture) inState(ctx context.Context, name string, want parking.State) error {
	states, err := f.store().States(ctx)
	if err == nil && states[name] != want {
		err = wrong("it is left in the state", states[name])
	}
	return err
}

// redrivePaths are the paths of the redrive function.
func (f *fixture) redrivePaths() []path {
	return []path{
		{"what is pending is published", func(ctx context.Context) error {
			id, err := f.pendingEvent(ctx, time.Now().Add(-time.Second), false)
			if err != nil {
				return err
			}
			return f.runRedrive(ctx, id, func(i ledger.Item) bool { return !i.PublishedAt.IsZero() })
		}},
		{"two pending events are published", func(ctx context.Context) error {
			due := time.Now().Add(-time.Second)
			_, err := f.pendingEvent(ctx, due, false)
			id, err2 := f.pendingEvent(ctx, due, false)
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			return f.runRedrive(ctx, id, func(i ledger.Item) bool { return !i.PublishedAt.IsZero() })
		}},
		{"a delivery of two events is replayed", func(ctx context.Context) error {
			name, err := f.park(ctx, paymenttest.Encode(paymenttest.Event()), paymenttest.Encode(paymenttest.Event()))
			if err != nil {
				return err
			}
			return f.replayed(ctx, name, intake.NoVersion, parking.Replayed)
		}},
		{"what can't be published is postponed", func(ctx context.Context) error {
			id, err := f.pendingEvent(ctx, time.Now().Add(-time.Second), true)
			if err != nil {
				return err
			}
			return f.runRedrive(ctx, id, func(i ledger.Item) bool {
				return i.Due.After(time.Now().Add(30*time.Second)) || !i.ParkedAt.IsZero()
			})
		}},
		{"what can't be published again is parked", func(ctx context.Context) error {
			due := time.Now().Add(-2 * time.Second).Truncate(time.Millisecond)
			id, err := f.pendingEvent(ctx, due, true)
			if err != nil {
				return err
			}
			// The first of two attempts.
			if err := f.ledger().Lease(ctx, []ledger.Pending{{EventID: id, Due: due}}, ledger.NewHolder(),
				due.Add(time.Second))[0].Err; !errors.Is(err, ledger.ErrCorrupt) {
				return errors.Join(errors.New("it is not corrupt"), err)
			}
			if err := f.runRedrive(ctx, id, func(i ledger.Item) bool { return !i.ParkedAt.IsZero() }); err != nil {
				return err
			}
			names, err := f.store().FindEvent(ctx, id)
			if err == nil && len(names) != 1 {
				err = wrong("parked under", names)
			}
			return err
		}},
		{"a delivery is replayed", func(ctx context.Context) error {
			name, err := f.park(ctx, paymenttest.Encode(paymenttest.Event()), large())
			if err != nil {
				return err
			}
			return f.replayed(ctx, name, intake.NoVersion, parking.Replayed)
		}},
		{"a conflict is replayed in the first version", func(ctx context.Context) error {
			name, err := f.parkConflict(ctx)
			if err != nil {
				return err
			}
			return f.replayed(ctx, name, intake.FirstVersion, parking.Settled)
		}},
		{"a conflict is replayed in the parked version", func(ctx context.Context) error {
			name, err := f.parkConflict(ctx)
			if err != nil {
				return err
			}
			return f.replayed(ctx, name, intake.ParkedVersion, parking.Replayed)
		}},
		{"what is parked is settled", func(ctx context.Context) error {
			name, _, err := f.parkEvent(ctx, false)
			if err != nil {
				return err
			}
			if _, cause, err := f.decide(ctx, name,
				map[string]any{"settle": []string{name}, "reason": "a test"}); err != nil || cause != "" {
				return errors.Join(wrong("settled with", cause), err)
			}
			return f.inState(ctx, name, parking.Settled)
		}},
		{"an event is replayed", func(ctx context.Context) error {
			name, _, err := f.parkEvent(ctx, false)
			if err != nil {
				return err
			}
			return f.replayed(ctx, name, intake.NoVersion, parking.Replayed)
		}},
		{"a large event is replayed", func(ctx context.Context) error {
			name, _, err := f.parkEvent(ctx, true)
			if err != nil {
				return err
			}
			return f.replayed(ctx, name, intake.NoVersion, parking.Replayed)
		}},
		{"what is not parked is said not to be", func(ctx context.Context) error {
			_, cause, err := f.decide(ctx, noName, map[string]any{"replay": []string{noName}})
			if err == nil && cause != parking.ErrNotParked.Error() {
				err = wrong("the cause is", cause)
			}
			return err
		}},
	}
}

// tokenPaths are the paths of the token function.
func (f *fixture) tokenPaths() []path {
	run := func(event string, want ...token.Outcome) func(context.Context) error {
		return func(ctx context.Context) error {
			got, err := f.runToken(ctx, event)
			if err == nil && !slices.Contains(want, got.Outcome) {
				err = wrong("the run came to", got)
			}
			return err
		}
	}
	return []path{
		{"a token is refreshed on request", run(refreshNow, token.Refreshed)},
		{"a run of the schedule", run(asScheduled, token.Fresh, token.Refreshed)},
	}
}

// command returns a way to make the command of a call of payhook by a person with these
// credentials.
func (f *fixture) command(t *testing.T, who aws.CredentialsProvider) func(context.Context, ...string) *exec.Cmd {
	t.Helper()
	program := filepath.Join(t.TempDir(), "payhook")
	f.build(t, program)
	key, err := who.Retrieve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cache := t.TempDir()
	return func(ctx context.Context, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, program, append(args, "--stack", f.Stack)...)
		cmd.Env = append(environmentWithout("AWS_"), "AWS_ENDPOINT_URL="+f.proxy.URL, "AWS_REGION="+f.Region,
			"AWS_ACCESS_KEY_ID="+key.AccessKeyID, "AWS_SECRET_ACCESS_KEY="+key.SecretAccessKey,
			"AWS_CONFIG_FILE="+os.DevNull, "AWS_SHARED_CREDENTIALS_FILE="+os.DevNull, "AWS_EC2_METADATA_DISABLED=true",
			"XDG_CACHE_HOME="+cache, "HOME="+cache)
		return cmd
	}
}

// caller returns a way to call payhook as a person with these credentials does. A call
// fails unless the program ends with one of the statuses. If a call of AWS is denied, it
// must say so and end with 3.
func (f *fixture) caller(t *testing.T, who aws.CredentialsProvider) func(ctx context.Context, statuses []int,
	args ...string) error {
	t.Helper()
	command := f.command(t, who)
	return func(ctx context.Context, statuses []int, args ...string) error {
		cmd := command(ctx, args...)
		output, err := cmd.CombinedOutput()
		status := cmd.ProcessState.ExitCode()
		for _, action := range f.proxy.denied() {
			if status != 3 || !bytes.Contains(output, []byte(action)) {
				t.Errorf("payhook %v is denied %s, ends with %d and says:\n%s", args, action, status, output)
			}
		}
		if err != nil && status < 0 || !slices.Contains(statuses, status) {
			return fmt.Errorf("payhook %v: %v\n%s", args, err, output)
		}
		return nil
	}
}

// listenPaths are the documented calls of payhook listen.
func (f *fixture) listenPaths(t *testing.T, who aws.CredentialsProvider) []path {
	t.Helper()
	command := f.command(t, who)
	// listen shows one webhook and its event, ends the program with Ctrl-C, and returns
	// what it wrote.
	listen := func(ctx context.Context) (string, error) {
		file, err := os.Create(filepath.Join(t.TempDir(), "output"))
		if err != nil {
			return "", err
		}
		defer file.Close()
		cmd := command(ctx, "listen", "--json")
		cmd.Stdout, cmd.Stderr = file, file
		if err := cmd.Start(); err != nil {
			return "", err
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		output := func() string {
			text, err := os.ReadFile(file.Name())
			return string(text) + fmt.Sprint(err)
		}
		// await waits for all words, or for the end of the program.
		await := func(words ...string) error {
			for deadline := time.Now().Add(waitTimeout); time.Now().Before(deadline); {
				text := output()
				if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) }) {
					return nil
				}
				select {
				case err := <-ended:
					ended <- err
					return fmt.Errorf("payhook listen ended: %v\n%s", err, output())
				case <-time.After(50 * time.Millisecond):
				}
			}
			return fmt.Errorf("payhook listen does not write %q:\n%s", words, output())
		}
		err = await("ready: ")
		if err == nil {
			_, err = f.post(ctx, paymenttest.Delivery(paymenttest.Event()), http.StatusOK)
		}
		if err == nil {
			err = await(`"type":"webhook"`, `"type":"event"`)
		}
		alone := len(ended) > 0
		if signaled := cmd.Process.Signal(os.Interrupt); err == nil {
			err = signaled
		}
		ended <- <-ended
		if got := cmd.ProcessState.ExitCode(); err == nil && got != 0 {
			err = fmt.Errorf("payhook listen ended with %d\n%s", got, output())
		}
		for _, action := range f.proxy.denied() {
			if !strings.Contains(output(), strings.TrimPrefix(action, "sqs:")) ||
				alone && cmd.ProcessState.ExitCode() != cli.StatusUnreachable {
				t.Errorf("payhook listen is denied %s, ends with %d and says:\n%s", action, cmd.ProcessState.ExitCode(),
					output())
			}
		}
		return output(), err
	}
	return []path{
		{"listen", func(ctx context.Context) error {
			text, err := listen(ctx)
			if err == nil && !strings.Contains(text, "\nremoved the rule") {
				err = wrong("left behind", text)
			}
			return err
		}},
	}
}

// logsPaths are the documented calls of payhook logs.
func (f *fixture) logsPaths(t *testing.T, who aws.CredentialsProvider) []path {
	call := f.caller(t, who)
	var paths []path
	for _, function := range []string{"webhook", "redrive", "token"} {
		paths = append(paths, path{"logs " + function, func(ctx context.Context) error {
			return call(ctx, []int{0}, "logs", function)
		}})
	}
	return paths
}

// statusPaths are the documented calls of payhook status.
func (f *fixture) statusPaths(t *testing.T, who aws.CredentialsProvider) []path {
	call := f.caller(t, who)
	return []path{{"status", func(ctx context.Context) error { return call(ctx, []int{0, 1}, "status") }}}
}

// operatePaths are the documented calls of payhook, run as a
// person does.
func (f *fixture) operatePaths(t *testing.T, who aws.CredentialsProvider) []path {
	t.Helper()
	call := f.caller(t, who)
	done, looked := []int{0}, []int{0, 1} // 1: something needs attention
	return []path{
		{"pending", func(ctx context.Context) error {
			if _, err := f.pendingEvent(ctx, time.Now().Add(time.Hour), false); err != nil {
				return err
			}
			return call(ctx, looked, "pending")
		}},
		{"parked list", func(ctx context.Context) error { return call(ctx, looked, "parked", "list") }},
		{"parked list --long, show and replay", func(ctx context.Context) error {
			name, id, err := f.parkEvent(ctx, false)
			if err != nil {
				return err
			}
			for _, args := range [][]string{{"parked", "list", "--event", id, "--long"}, {"parked", "show", name},
				{"parked", "show", name, "--payload"}} {
				if err := call(ctx, looked, args...); err != nil {
					return err
				}
			}
			return call(ctx, done, "parked", "replay", name, "--yes")
		}},
		{"parked settle", func(ctx context.Context) error {
			name, _, err := f.parkEvent(ctx, false)
			if err != nil {
				return err
			}
			return call(ctx, done, "parked", "settle", name, "--reason", "a test")
		}},
		{"parked show of what is not parked", func(ctx context.Context) error {
			return call(ctx, []int{1}, "parked", "show", noName)
		}},
		{"refused list and show", func(ctx context.Context) error {
			name, err := refused.NewStore(f.buckets(), f.ParkingBucket).Put(ctx, refused.Request{ReceivedAt: time.Now(),
				Outcome: "signature-missing", Method: http.MethodPost, Path: "/", Payload: []byte("{}")})
			if err != nil {
				return err
			}
			if err := call(ctx, done, "refused", "list"); err != nil {
				return err
			}
			return call(ctx, done, "refused", "show", name)
		}},
		{"event", func(ctx context.Context) error { return call(ctx, looked, "event", uuid.New().String()) }},
		{"key", func(ctx context.Context) error { return call(ctx, looked, "key", f.service.Key().ID) }},
		{"key --drop", func(ctx context.Context) error {
			f.service.Rotate()
			if _, err := f.post(ctx, paymenttest.Delivery(paymenttest.Event()), http.StatusOK); err != nil {
				return err
			}
			return call(ctx, done, "key", f.service.Key().ID, "--drop")
		}},
	}
}

// consumerPaths are what a consumer of large events does.
func (f *fixture) consumerPaths(who aws.CredentialsProvider) []path {
	client := s3.NewFromConfig(f.as(who), func(o *s3.Options) { o.UsePathStyle = true })
	resolve := func(ctx context.Context, gone bool) error {
		event, err := payment.DecodeRawEvent(large())
		if err != nil {
			return err
		}
		bucket := f.outputs["ClaimBucket"]
		detail, err := claimcheck.NewStore(f.buckets(), bucket).Put(ctx, event, sha256.Sum256(event.Bytes))
		if err != nil {
			return err
		}
		if gone {
			var d claimcheck.Detail
			if err := json.Unmarshal(detail, &d); err != nil {
				return err
			}
			if _, err := f.buckets().DeleteObject(ctx,
				&s3.DeleteObjectInput{Bucket: &bucket, Key: &d.ClaimCheck.Key}); err != nil {
				return err
			}
			if _, err := claimcheck.Resolve(ctx, client, detail); !errors.Is(err, claimcheck.ErrGone) {
				return wrong("resolved with", err)
			}
			return nil
		}
		got, err := claimcheck.Resolve(ctx, client, detail)
		if err == nil && !bytes.Equal(got, event.Bytes) {
			err = errors.New("it is not the event that was put")
		}
		return err
	}
	return []path{
		{"a large event is fetched", func(ctx context.Context) error { return resolve(ctx, false) }},
		{"a large event is gone", func(ctx context.Context) error { return resolve(ctx, true) }},
	}
}

// clientPaths are what a client of the service's APIs does.
func (f *fixture) clientPaths(who aws.CredentialsProvider) []path {
	return []path{{"the access token is read", func(ctx context.Context) error {
		reader := token.NewReader(secretsmanager.NewFromConfig(f.as(who)), f.TokenSecret, token.ReaderOptions{})
		_, err := reader.TokenContext(ctx)
		return err
	}}}
}
