package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/names"
	"payhook.example/shared/parking"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// withCertificates are the settings of a deployment that requires client
// certificates of a CA.
func withCertificates(t *testing.T, authentication string, ca *paymenttest.CA) map[string]string {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, names.TruststoreFile), ca.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	return map[string]string{settings.Authentication.Env(): authentication, "LAMBDA_TASK_ROOT": folder}
}

// daysLeft returns the metric of the last run, or NaN.
func (d *deployed) daysLeft(t *testing.T) float64 {
	t.Helper()
	d.log.Reset()
	d.run(t)
	var line map[string]any
	if err := json.Unmarshal(bytes.TrimSpace(d.log.Bytes()), &line); err != nil {
		t.Fatal(err)
	}
	days, ok := line[names.TrustDaysLeftMetric.Name].(float64)
	if ok != strings.Contains(d.log.String(), `{"Name":"TrustDaysLeft"}`) {
		t.Errorf("the metric is not declared: %s", d.log.String())
	}
	if !ok {
		return math.NaN()
	}
	return days
}

// If a certificate has expired, no webhook arrives: only the schedule reports it.
func TestEachRunWritesTheDaysThatTheTrustLasts(t *testing.T) {
	ca := paymenttest.NewCA("Operator CA")
	for _, authentication := range []string{settings.ByMTLS, settings.ByBoth} {
		d := deployWith(t, withCertificates(t, authentication, ca))
		client := ca.Client(nil).Leaf
		now := client.NotAfter.Add(-20 * 24 * time.Hour)
		d.now = func() time.Time { return now }
		if got := d.daysLeft(t); math.Round(got) != math.Round(ca.Certificate.NotAfter.Sub(now).Hours()/24) {
			t.Errorf("%s: %v days before the first webhook", authentication, got)
		}
		if err := keys.NewCertificates(d.db, "keys").Record(t.Context(), client, now); err != nil {
			t.Fatal(err)
		}
		if got := d.daysLeft(t); got != 20 {
			t.Errorf("%s: %v days, want 20", authentication, got)
		}
		now = client.NotAfter.Add(time.Hour)
		if got := d.daysLeft(t); got != 0 {
			t.Errorf("%s: %v days after the end", authentication, got)
		}
	}
	if got := deployWith(t, nil).daysLeft(t); !math.IsNaN(got) {
		t.Errorf("%v days, although no certificate is required", got)
	}
}

func TestTheDaysOfTheCAsAreWrittenWhenTheTableDoesNotAnswer(t *testing.T) {
	d := deployWith(t, withCertificates(t, settings.ByMTLS, paymenttest.NewCA("Operator CA")))
	d.trust.client = brokenKeys{}
	if got := d.daysLeft(t); math.Round(got/365) != 10 || !strings.Contains(d.log.String(), "certificateCause") {
		t.Errorf("%v days: %s", got, d.log.String())
	}
	if _, err := d.Handle(t.Context(), event{Certificates: true}); err == nil || !strings.HasPrefix(err.Error(),
		"redrive: keys: ") {
		t.Error("the report lacks the certificate without an error")
	}
}

func TestCertificatesAreReported(t *testing.T) {
	root := paymenttest.NewCA("Root CA")
	ca := root.NewIntermediate("Issuing CA", nil)
	conf := withCertificates(t, settings.ByBoth, ca)
	client := ca.Client(nil).Leaf
	pin := clientcert.PinOf(client)
	conf[settings.ClientCertPins.Env()] = hex.EncodeToString(pin[:])
	conf[settings.ClientCertSubjects.Env()] = "CN=a;CN=b"
	conf[settings.RevokedSerials.Env()] = "00:0A@CN=a"
	d := deployWith(t, conf)
	if err := keys.NewCertificates(d.db, "keys").Record(t.Context(), client, time.Now()); err != nil {
		t.Fatal(err)
	}
	r, err := d.Handle(t.Context(), event{Certificates: true})
	if err != nil {
		t.Fatal(err)
	}
	c := r.Certificates
	if c.Authentication != "both" || math.Round(c.DaysLeft) != 365 || len(c.CAs) != 2 ||
		c.CAs[0].Subject != "CN=Issuing CA,O=Payment Service" ||
		c.CAs[1].Fingerprint != clientcert.Fingerprint(root.Certificate) ||
		!c.CAs[0].NotAfter.Equal(ca.Certificate.NotAfter) ||
		!slices.Equal(c.Pins, []string{hex.EncodeToString(pin[:])}) ||
		!slices.Equal(c.Subjects, []string{"CN=a", "CN=b"}) || !slices.Equal(c.Revoked, []string{"a@CN=a"}) ||
		c.Last == nil || c.Last.Fingerprint != clientcert.Fingerprint(client) {
		t.Errorf("got %+v", c)
	}
	if r, err = deployWith(t, nil).Handle(t.Context(), event{Certificates: true}); err != nil ||
		r.Certificates == nil || r.Certificates.Authentication != "signature" {
		t.Errorf("with signatures: %+v, %v", r.Certificates, err)
	}
}

// A replay verifies the client certificate with the truststore of the deployment.
func TestAReplayUsesTheTruststore(t *testing.T) {
	ca := paymenttest.NewCA("Operator CA")
	client := ca.Client(nil).Leaf
	for name, test := range map[string]struct {
		truststore *paymenttest.CA
		unverified bool
	}{
		"of the deployment": {ca, false},
		"replaced since":    {paymenttest.NewCA("Another CA"), true},
	} {
		d := deployWith(t, withCertificates(t, settings.ByMTLS, test.truststore))
		id := uuid.New().String()
		payload := paymenttest.RawDelivery(id, newEvent())
		digest := sha256.Sum256(payload)
		parked, _, err := d.parking.Park(t.Context(), parking.Parked{
			Reason: parking.Invalid, ParkedAt: time.Now(), Bus: "payhook", DeliveryID: id, Payload: payload,
			Certificate: &parking.Certificate{
				PayloadDigest: digest[:], Fingerprint: clientcert.Fingerprint(client), AcceptedAt: time.Now(),
				Chain: []string{string(paymenttest.EncodeCertificate(client)),
					string(paymenttest.EncodeCertificate(ca.Certificate))},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		r, err := d.Handle(t.Context(), event{Replay: []string{parked}})
		if err != nil || r.Replayed[0].Outcome != intake.Accepted ||
			strings.Contains(r.Replayed[0].Unverified, "the truststore does not trust") != test.unverified {
			t.Errorf("%s: %+v, %v", name, r.Replayed, err)
		}
	}
}

// report returns the report of the function with a value of a setting.
func reported(t *testing.T, s *settings.Setting, value string) *trusted {
	t.Helper()
	conf := withCertificates(t, settings.ByMTLS, paymenttest.NewCA("Operator CA"))
	conf[s.Env()] = value
	r, err := deployWith(t, conf).Handle(t.Context(), event{Certificates: true})
	if err != nil {
		t.Fatal(err)
	}
	return r.Certificates
}

func init() {
	effects[settings.Authentication] = func(t *testing.T) {
		for _, value := range []string{settings.BySignature, settings.ByMTLS, settings.ByBoth} {
			if got := reported(t, settings.Authentication, value); got.Authentication != value ||
				(len(got.CAs) > 0) != (value != settings.BySignature) {
				t.Errorf("%s: reported %+v", value, got)
			}
		}
	}
	effects[settings.ClientCertPins] = func(t *testing.T) {
		pin := strings.Repeat("ab", 32)
		if got := reported(t, settings.ClientCertPins, pin).Pins; !slices.Equal(got, []string{pin}) {
			t.Errorf("reported %v", got)
		}
	}
	effects[settings.ClientCertSubjects] = func(t *testing.T) {
		if got := reported(t, settings.ClientCertSubjects, "CN=a").Subjects; !slices.Equal(got, []string{"CN=a"}) {
			t.Errorf("reported %v", got)
		}
	}
	effects[settings.RevokedSerials] = func(t *testing.T) {
		if got := reported(t, settings.RevokedSerials, "1f@CN=a").Revoked; !slices.Equal(got, []string{"1f@CN=a"}) {
			t.Errorf("reported %v", got)
		}
	}
}

var errNoAnswer = errors.New("no answer")

// brokenKeys is a table that does not answer.
type brokenKeys struct{}

func (brokenKeys) GetItem(context.Context, *dynamodb.GetItemInput,
	...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	return nil, errNoAnswer
}
