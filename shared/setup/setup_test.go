package setup_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamodbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/google/go-cmp/cmp"

	eventbus "payhook.example/shared/aws/eventbridge"
	"payhook.example/shared/awstest"
	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/names"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
	"payhook.example/shared/setup"
)

// Package bus retries, and only what failed. All other calls are retried by the SDK.
func TestOnlyTheSDKsRetriesOfPutEventsAreOff(t *testing.T) {
	server := awstest.NewOutage(t, time.Hour, func(*http.Request) bool { return true }, failures["500"], nil)
	synctest.Test(t, func(t *testing.T) {
		c := clients(t, server.URL)
		if _, err := c.EventBridge.PutEvents(t.Context(), &eventbridge.PutEventsInput{
			Entries: []types.PutEventsRequestEntry{{Source: aws.String("source"), DetailType: aws.String("{}"),
				Detail: aws.String("{}")}},
		}); err == nil || server.Failed.Load() != 1 {
			t.Errorf("%d calls of PutEvents, %v", server.Failed.Load(), err)
		}
		if _, err := c.DynamoDB.DescribeTable(t.Context(),
			&dynamodb.DescribeTableInput{TableName: aws.String("ledger")}); err == nil || server.Failed.Load() != 1+12 {
			t.Errorf("%d calls with those of DescribeTable, %v", server.Failed.Load(), err)
		}
	})
}

// oneKey knows the key of the service.
type oneKey struct{ key paymenttest.Key }

func (k oneKey) Lookup(context.Context, string, netip.Addr) (keys.Found, error) {
	return keys.Found{Key: &k.key.Private.PublicKey}, nil
}

func (k oneKey) Refetch(context.Context, string, keys.Found, netip.Addr) (keys.Found, error) {
	return keys.Found{}, nil
}

func (oneKey) SourceRecorded(netip.Addr) bool           { return true }
func (oneKey) RecordSource(context.Context, netip.Addr) {}

// eventsOf returns so many events, each with a member of so many bytes.
func eventsOf(n, bytes int) []payment.Event {
	events := paymenttest.Events(n)
	for i := range events {
		events[i].EventData.Identifiers.PaymentRequestID = strings.Repeat("x", bytes)
	}
	return events
}

// receiveSigned gives a pipeline a delivery of events, signed with key.
func receiveSigned(ctx context.Context, t *testing.T, p *intake.Pipeline, key paymenttest.Key,
	events []payment.Event) intake.Result {
	t.Helper()
	signed, err := paymenttest.Sender{Key: key}.Sign(ctx,
		paymenttest.Webhook{URL: "https://hook.example/", Payload: paymenttest.Delivery(events...)})
	if err != nil {
		t.Fatal(err)
	}
	headers := map[string]string{}
	for name := range signed.Header {
		headers[name] = signed.Header.Get(name)
	}
	return intake.NewReceiver(p, intake.Mechanisms{Signature: &intake.Signature{
		Scheme: paymenttest.DefaultScheme(), Keys: oneKey{key}}}).Receive(ctx,
		intake.Delivery{Payload: signed.Body, Headers: headers})
}

// delivered is what became of two events in a pipeline.
type delivered struct {
	Bus, Source      string
	Requests, Claims int
	Window           time.Duration
	Held             time.Duration // without the time of the invocation, under half a minute
}

func TestAPipelineUsesItsSettings(t *testing.T) {
	key := paymenttest.NewKey(2048)
	for name, c := range map[string]struct {
		s     settings.Function
		bytes int // of a member of each event
		want  delivered
	}{
		"one request": {settings.Function{EventBusName: "the-bus", EventSource: "the-source", MaxEntryBytes: 1 << 20,
			DeduplicationWindow: time.Hour, RedriveGrace: time.Minute}, 2000,
			delivered{Bus: "the-bus", Source: "the-source", Requests: 1, Window: time.Hour, Held: time.Minute}},
		"small requests": {settings.Function{EventBusName: "other", EventSource: "b", MaxEntryBytes: 4000,
			DeduplicationWindow: 48 * time.Hour, RedriveGrace: time.Hour}, 2000,
			delivered{Bus: "other", Source: "b", Requests: 2, Window: 48 * time.Hour, Held: time.Hour}},
		"large events": {settings.Function{EventBusName: "b", EventSource: "c", MaxEntryBytes: 1 << 20,
			DeduplicationWindow: time.Hour, RedriveGrace: time.Minute}, settings.ClaimCheckBytes,
			delivered{Bus: "b", Source: "c", Requests: 1, Claims: 2, Window: time.Hour, Held: time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			db, events, buckets := awstest.NewDynamoDB(), &awstest.EventBridge{}, awstest.NewS3()
			db.CreateLedger("the-table")
			buckets.MakeBucket("claims")
			c.s.LedgerTable, c.s.ClaimBucket, c.s.ParkingBucket = "the-table", "claims", "parking"
			two := eventsOf(2, c.bytes)
			receive := func() {
				p := setup.Pipeline(db, eventbus.NewBus(events, c.s.EventBusName), buckets, nil, c.s)
				r := receiveSigned(t.Context(), t, p, key, two)
				if r.Outcome != intake.Accepted {
					t.Fatalf("%+v", r)
				}
			}
			receive()
			first := events.Entries()[0]
			got := delivered{Bus: *first.EventBusName, Source: *first.Source, Requests: events.Calls(),
				Claims: len(buckets.Objects("claims"))}
			for _, item := range db.Items("the-table") {
				got.Window = time.Until(time.Unix(number(t, item, names.LedgerTTL), 0)).Round(time.Minute)
			}
			// Of a bus that is down, the events are held.
			db.CreateLedger("the-table")
			events.Answer = func([]types.PutEventsRequestEntry) (map[int]string, error) {
				return map[int]string{0: "InvalidArgument", 1: "InvalidArgument"}, nil
			}
			receive()
			for _, item := range db.Items("the-table") {
				got.Held = time.Until(time.UnixMilli(number(t, item, names.LedgerPendingDue))).Round(time.Minute)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func number(t *testing.T, item awstest.Item, attribute string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(item[attribute].(*dynamodbtypes.AttributeValueMemberN).Value, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Only the clients of the key service trust its CA.
func TestTheKeyServiceCanHaveAPrivateCA(t *testing.T) {
	ca, now := paymenttest.NewCA("Service CA"), time.Now()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("Authorization"))
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{ca.Server()}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	secrets := awstest.NewSecretsManager(t)
	secrets.Put("token", fmt.Sprintf(`{"access_token":"t","token_type":"Bearer","issued_at":%q,"expires_at":%q}`,
		now.Format(time.RFC3339), now.Add(time.Hour).Format(time.RFC3339)))
	own, untrusted := x509.NewCertPool(), new(tls.CertificateVerificationError)
	own.AddCert(ca.Certificate)
	base, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	for auth, want := range map[string]string{"none": "", "bearer": "Bearer t"} {
		for _, cas := range []*x509.CertPool{nil, own} {
			s := settings.Function{KeyService: base, TokenSecret: "token", ServiceCAs: cas,
				KeysAuth: auth}
			c := clients(t, secrets.URL)
			response, err := setup.KeyService(c, s).Get(server.URL)
			if cas == nil {
				if !errors.As(err, &untrusted) {
					t.Errorf("%s: %v without the CA", auth, err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if string(text) != want {
				t.Errorf("%s: sent %q", auth, text)
			}
			if _, err := c.Connections.Client().Get(server.URL); !errors.As(err, &untrusted) {
				t.Errorf("%s: the clients of AWS: %v", auth, err)
			}
		}
	}
}
