package local

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"encoding/xml"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"

	"payhook.example/infra/checks"
	"payhook.example/shared/aws/dynamodb"
	"payhook.example/shared/aws/s3"
	"payhook.example/shared/bus"
	"payhook.example/shared/keys"
	"payhook.example/shared/ledger"
	"payhook.example/shared/objects"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/proof"
	"payhook.example/shared/token"
	"payhook.example/shared/wire"
)

// unproven are the permissions that no path needs on the emulator: Lambda writes a function's log
// with the permissions of its role (AWS, "Sending Lambda function logs to CloudWatch Logs"), and
// the emulator writes it itself.
var unproven = []string{"logs:CreateLogStream", "logs:PutLogEvents"}

// Every path of every function works with the permissions that the stack grants. Without one of
// them, a path fails. The roles of the schedules are not here: the scheduler of the emulator does
// not use them. The tests of infra/payhook compare them with the calls of the schedules.
func (f *fixture) testPermissions(t *testing.T) {
	for function, paths := range map[string][]path{
		"webhook": f.webhookPaths(), "redrive": f.redrivePaths(),
		"token": {{"a token is refreshed on request", f.refresh}},
	} {
		t.Run(function, func(t *testing.T) {
			for _, p := range paths {
				if denied, err := f.try(t, p); err != nil {
					t.Fatalf("%s: %v; denied: %q", p.name, err, denied)
				}
			}
			f.removeEach(t, function, paths)
		})
	}
}

// path makes a function call AWS: the proxy sees which calls are denied. It fails if the function does not have the
// expected result. What a path needs is written as root, past the proxy.
type path struct {
	name string
	run  func(context.Context) error
}

// try runs a path. It returns the actions that were denied meanwhile; the error is not nil if there are any.
func (f *fixture) try(t *testing.T, p path) (denied []string, err error) {
	f.proxy.forget()
	err = p.run(t.Context())
	f.proxy.awaitIdle()
	if denied = f.proxy.denied(); len(denied) > 0 {
		err = errors.Join(err, errors.New("AWS denied a call"))
	}
	return denied, err
}

// statement is one statement of a policy.
type statement struct {
	Effect           string
	Action, Resource any
	Condition        any `json:",omitempty"`
}

// removeEach removes each permission of the only policy of a function's role once: one action on one resource. It fails
// the test unless a path fails then, because its action is denied.
func (f *fixture) removeEach(t *testing.T, function string, paths []path) {
	name := f.Stack.Functions[function]
	out, err := lambda.NewFromConfig(f.Stack.AWS).GetFunctionConfiguration(t.Context(),
		&lambda.GetFunctionConfigurationInput{FunctionName: &name})
	if err != nil {
		t.Fatal(err)
	}
	_, role, _ := strings.Cut(aws.ToString(out.Role), "/")
	listed, err := callIAM(t.Context(), f.Stack.AWS, "ListRolePolicies", role, nil)
	if err != nil || len(listed.PolicyNames) != 1 {
		t.Fatalf("%s has the policies %+v, %v, want one", role, listed, err)
	}
	policy, err := callIAM(t.Context(), f.Stack.AWS, "GetRolePolicy", role,
		url.Values{"PolicyName": {listed.PolicyNames[0]}})
	if err != nil {
		t.Fatal(err)
	}
	// IAM returns policies encoded as in a URL (AWS, "GetRolePolicy" in the IAM API reference).
	text, err := url.PathUnescape(policy.PolicyDocument)
	var document struct{ Statement []statement }
	if err := errors.Join(err, json.Unmarshal([]byte(text), &document)); err != nil {
		t.Fatal(err)
	}
	var granted []statement
	for _, s := range document.Statement {
		for _, action := range list(s.Action) {
			for _, resource := range list(s.Resource) {
				granted = append(granted, statement{s.Effect, action, resource, s.Condition})
			}
		}
	}
	put := func(ctx context.Context, statements []statement) {
		text, err := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": statements})
		if err == nil {
			_, err = callIAM(ctx, f.Stack.AWS, "PutRolePolicy", role,
				url.Values{"PolicyName": {listed.PolicyNames[0]}, "PolicyDocument": {string(text)}})
		}
		if err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() { put(context.WithoutCancel(t.Context()), granted) })
	for i, s := range granted {
		action, _ := s.Action.(string)
		if s.Effect != "Allow" || slices.Contains(unproven, action) {
			continue
		}
		put(t.Context(), slices.Delete(slices.Clone(granted), i, i+1))
		needed := slices.IndexFunc(paths, func(p path) bool {
			denied, err := f.try(t, p)
			if err != nil && !slices.Contains(denied, action) {
				t.Errorf("without %s on %v, %q fails for another reason: %v; denied: %q", action, s.Resource, p.name,
					err, denied)
			}
			return err != nil
		})
		put(t.Context(), granted)
		if needed < 0 {
			t.Errorf("no path needs %s on %v", action, s.Resource)
			continue
		}
		t.Logf("without %s on %v, this fails: %s", action, s.Resource, paths[needed].name)
		// A process of a function caches an error for a moment.
		if err := checks.Poll(t.Context(), waitTimeout, 100*time.Millisecond, func() (bool, error) {
			_, err = f.try(t, paths[needed])
			return err == nil, nil
		}); err != nil {
			t.Fatalf("%q does not work again: %v", paths[needed].name, err)
		}
		// The next permission is often of the same path.
		paths = slices.Insert(slices.Delete(slices.Clone(paths), needed, needed+1), 0, paths[needed])
	}
}

// ofIAM are the parts of IAM's answers that the tests read.
type ofIAM struct {
	Role           string   `xml:"CreateRoleResult>Role>Arn"`
	PolicyNames    []string `xml:"ListRolePoliciesResult>PolicyNames>member"`
	PolicyDocument string   `xml:"GetRolePolicyResult>PolicyDocument"`
}

// callIAM calls an action of IAM's Query API on the emulator, which checks no signature. The SDK's package for IAM
// takes ten seconds to compile.
func callIAM(ctx context.Context, config aws.Config, action, role string, values url.Values) (answer ofIAM, err error) {
	all := url.Values{"Version": {"2010-05-08"}, "Action": {action}, "RoleName": {role}}
	maps.Copy(all, values)
	body := strings.NewReader(all.Encode())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, *config.BaseEndpoint, body)
	if err != nil {
		return answer, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=test/20260101/"+config.Region+"/iam/aws4_request")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer, err
	}
	defer resp.Body.Close()
	err = xml.NewDecoder(resp.Body).Decode(&answer)
	if resp.StatusCode != http.StatusOK {
		err = errors.Join(wrong(action, resp.Status), err)
	}
	return answer, err
}

func list(value any) []any {
	if l, ok := value.([]any); ok {
		return l
	}
	return []any{value}
}

// fresh returns a new event.
func fresh() []byte { return paymenttest.Encode(paymenttest.Event()) }

// large returns an event that is too large for the bus.
func large() []byte { return paymenttest.Noted(paymenttest.Event(), 260_000) }

// versions returns two events with one eventId.
func versions() (first, second []byte) {
	event := paymenttest.Event()
	return paymenttest.Encode(event), paymenttest.Encode(paymenttest.WithAmount(event, "9250.00"))
}

// delivery returns a delivery of events.
func delivery(events ...[]byte) []byte {
	return paymenttest.RawDelivery(uuid.New().String(), events...)
}

// newSecrets makes the service use another key and another token. The function may still hold the token before it.
func (f *fixture) newSecrets(ctx context.Context) error {
	f.machine.service.Change(func(s *paymenttest.State) { s.TokenKey = []byte(rand.Text()) })
	if err := f.refresh(ctx); err != nil {
		return err
	}
	_, err := f.machine.service.Do(ctx, wire.ControlRequest{Rotate: true})
	return err
}

// refresh lets the token function refresh the token.
func (f *fixture) refresh(ctx context.Context) error {
	run, err := f.RunToken(ctx, checks.RefreshNow)
	if err == nil && run.Outcome != token.Refreshed {
		err = wrong("the run came to", run)
	}
	return err
}

// webhookPaths are the paths of the webhook function.
func (f *fixture) webhookPaths() []path {
	return []path{
		{"a delivery is accepted and published, and again a duplicate", func(ctx context.Context) error {
			event := fresh()
			_, err := f.send(ctx, delivery(event), http.StatusOK)
			_, again := f.send(ctx, delivery(event), http.StatusOK)
			return errors.Join(err, again)
		}},
		{"a new key is fetched with a token that is new as well", func(ctx context.Context) error {
			failed := f.newSecrets(ctx)
			_, err := f.send(ctx, delivery(fresh()), http.StatusOK)
			return errors.Join(failed, err)
		}},
		{"a large event goes to S3", func(ctx context.Context) error {
			_, err := f.send(ctx, delivery(large()), http.StatusOK)
			return err
		}},
		{"an invalid delivery is parked", func(ctx context.Context) error {
			_, err := f.send(ctx, delivery([]byte("{}")), http.StatusUnprocessableEntity)
			return err
		}},
		{"a conflict is parked", func(ctx context.Context) error {
			_, err := f.parkConflict(ctx)
			return err
		}},
		{"a rejected webhook is stored", func(ctx context.Context) error {
			got, err := f.machine.service.Send(ctx, paymenttest.Webhook{URL: f.Stack.WebhookURL,
				Payload: delivery(fresh()), Flaw: paymenttest.SignatureChanged})
			if err == nil && got.Status != http.StatusUnauthorized {
				err = wrong("not rejected", got.Status)
			}
			return err
		}},
	}
}

func (f *fixture) ledger() *ledger.Ledger {
	return ledger.New(dynamodb.NewLedger(dynamodb.NewClient(f.Stack.AWS), f.Stack.LedgerTable),
		ledger.Options{Window: time.Hour})
}

func (f *fixture) parking() objects.Store { return s3.NewBucket(f.Stack.S3(), f.Stack.ParkingBucket) }

// record writes an event as pending, and returns its item. If it is large, it is in the bucket of large events.
func (f *fixture) record(ctx context.Context, large bool) (ledger.Item, error) {
	raw, err := payment.DecodeRawEvent(fresh())
	if err != nil {
		return ledger.Item{}, err
	}
	i := ledger.NewItem(raw, uuid.New().String(), time.Now())
	if i.Large = large; large {
		i.Detail, err = bus.NewLargeEvents(s3.NewBucket(f.Stack.S3(), f.Stack.LargeEventBucket),
			f.Stack.LargeEventBucket).Put(ctx, raw)
	}
	due := time.Now().Add(-time.Minute).Truncate(time.Millisecond)
	r := f.ledger().Record(ctx, []ledger.Item{i}, ledger.NewLeaseOwner(), due)[0]
	i, _, failed := f.ledger().Find(ctx, i.EventID)
	return i, errors.Join(err, r.Err, failed)
}

// pending writes an event as pending, and runs the redrive function until it is published.
func (f *fixture) pending(ctx context.Context) error {
	i, err := f.record(ctx, false)
	if err != nil {
		return err
	}
	return checks.Poll(ctx, waitTimeout, 100*time.Millisecond, func() (bool, error) {
		_, failed := f.redrive(ctx, wire.RedriveRequest{})
		item, _, err := f.ledger().Find(ctx, i.EventID)
		if err == nil && item.State == ledger.Pending && len(f.proxy.denied()) > 0 {
			err = errors.Join(wrong("the item is", item), failed)
		}
		return item.State != ledger.Pending, err // a run of the schedule may hold the item
	})
}

// redrive invokes the redrive function.
func (f *fixture) redrive(ctx context.Context, r wire.RedriveRequest) (a wire.RedriveReport, err error) {
	event, err := json.Marshal(r)
	if err == nil {
		err = f.Invoke(ctx, "redrive", string(event), &a)
	}
	return a, err
}

// park parks a delivery for a reason, as the webhook function did before a fix, and returns its name.
func (f *fixture) park(ctx context.Context, reason proof.Reason, events ...[]byte) (string, error) {
	key, id := f.machine.service.Key(), uuid.New().String()
	p := proof.Proof{Reason: reason, Payload: paymenttest.RawDelivery(id, events...)}
	signed, err := paymenttest.Sender{Key: key}.Sign(ctx, paymenttest.Webhook{Payload: p.Payload})
	if err != nil {
		return "", err
	}
	if reason == proof.Rejected {
		p.Request = &proof.RejectedRequest{ReceivedAt: time.Now().UTC(), Outcome: "test", Method: http.MethodPost,
			Headers: signed.Headers}
	} else {
		parts, err := paymenttest.DefaultScheme().Extract(signed.Headers, "")
		if err != nil {
			return "", err
		}
		p.StoredAt, p.DeliveryID, p.JWK = time.Now().UTC(), id, keys.FormatJWK(key.ID, &key.Private.PublicKey)
		p.Timestamp, p.KeyID, p.Signature = parts.Timestamp, parts.KeyID, parts.Signature
	}
	name, _, err := proof.Put(ctx, f.parking(), p)
	return name, err
}

// parkConflict sends a delivery in conflict, and returns the name under which it is parked.
func (f *fixture) parkConflict(ctx context.Context) (string, error) {
	first, second := versions()
	id := uuid.New().String()
	_, err := f.send(ctx, delivery(first), http.StatusOK)
	_, err2 := f.send(ctx, paymenttest.RawDelivery(id, second), http.StatusOK)
	parked, err3 := proof.FindDelivery(ctx, f.parking(), id)
	if err := errors.Join(err, err2, err3); err != nil || len(parked) != 1 {
		return "", errors.Join(err, wrong("parked are", parked))
	}
	return parked[0], nil
}

// redrivePaths are the paths of the redrive function.
func (f *fixture) redrivePaths() []path {
	// replay has the function replay what was parked. It is parked again for another reason, or done.
	replay := func(again bool, r wire.RedriveRequest,
		park func(context.Context) (string, error)) func(context.Context) error {
		return func(ctx context.Context) error {
			name, err := park(ctx)
			if err != nil {
				return err
			}
			r.Replay = []string{name}
			a, err := f.redrive(ctx, r)
			if err != nil || len(a.Decided) != 1 || (a.Decided[0].Parked != "") != again ||
				!again && a.Decided[0].Cause != "" {
				return errors.Join(err, wrong("replayed as", a.Decided))
			}
			return nil
		}
	}
	return []path{
		{"what is pending is published", f.pending},
		{"a delivery with a large event is replayed", replay(false, wire.RedriveRequest{},
			func(ctx context.Context) (string, error) { return f.park(ctx, proof.Invalid, fresh(), large()) })},
		{"a conflict is replayed with the first content", replay(false, wire.RedriveRequest{Content: wire.FirstContent},
			f.parkConflict)},
		{"a rejected webhook is replayed, with a new key and a new token", replay(false,
			wire.RedriveRequest{Reason: "test"},
			func(ctx context.Context) (string, error) {
				if err := f.newSecrets(ctx); err != nil {
					return "", err
				}
				return f.park(ctx, proof.Rejected, fresh())
			})},
		{"a rejected webhook is replayed, and is invalid", replay(true, wire.RedriveRequest{Reason: "test"},
			func(ctx context.Context) (string, error) { return f.park(ctx, proof.Rejected, []byte("{}")) })},
		{"an invalid delivery is replayed, and has a conflict", replay(true, wire.RedriveRequest{},
			func(ctx context.Context) (string, error) {
				first, second := versions()
				return f.park(ctx, proof.Invalid, first, second)
			})},
		{"a parked event in the bucket of large events is replayed", replay(false, wire.RedriveRequest{},
			func(ctx context.Context) (string, error) {
				i, err := f.record(ctx, true)
				if err == nil {
					err = f.ledger().Park(ctx, i, "test", "test")
				}
				return i.EventID, err
			})},
		{"what is not parked is said not to be", func(ctx context.Context) error {
			const name = "invalid/2026/01/31/12/20260131T120000.000Z-unknown-00000000000000000000000000000000.json"
			_, err := f.redrive(ctx, wire.RedriveRequest{Replay: []string{name}})
			return err
		}},
	}
}
