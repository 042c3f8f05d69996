package main

import (
	"slices"
	"strings"
	"testing"

	eventbridgetypes "github.com/aws/aws-sdk-go-v2/service/eventbridge/types"

	"payhook.example/shared/intake"
	"payhook.example/shared/parking"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// rejecting returns a deployment whose bus rejects the one event that is due.
func rejecting(t *testing.T, s *settings.Setting, value string) *deployment {
	t.Helper()
	d := deploy(t, map[string]string{s.Env(): value})
	d.bus.Answer = func([]eventbridgetypes.PutEventsRequestEntry) (map[int]string, error) {
		return map[int]string{0: "InvalidArgument"}, nil
	}
	d.record("bus", newEvent())
	return d
}

// reported tests that the report on certificates has the value of a setting.
func reported(s *settings.Setting, value string, field func(*trusted) []string) func(*testing.T) {
	return func(t *testing.T) {
		conf := withCertificates(t, settings.ByMTLS, paymenttest.NewCA("Operator CA"))
		conf[s.Env()] = value
		if got := field(deploy(t, conf).handle(event{Certificates: true}).Certificates); !slices.Equal(got,
			[]string{value}) {
			t.Errorf("reported %v", got)
		}
	}
}

// effects has for every setting a test that the function's set-up passes it on.
var effects = map[*settings.Setting]func(t *testing.T){
	settings.RedriveAttempts: func(t *testing.T) {
		for value, want := range map[string]int{"1": 1, "2": 0} {
			if got := rejecting(t, settings.RedriveAttempts, value).handle(event{}).Parked; got != want {
				t.Errorf("%s attempts: %d events are parked at the first failure, want %d", value, got, want)
			}
		}
	},
	settings.KeyExponents: func(t *testing.T) {
		for value, want := range map[string]intake.Outcome{"65537": intake.Accepted, "3": intake.KeyRefused} {
			d := deploy(t, map[string]string{settings.KeyExponents.Env(): value})
			if got := d.replay(event{}, d.park(parking.Invalid, nil, newEvent())).Outcome; got != want {
				t.Errorf("keyExponents=%s: replayed as %s, want %s", value, got, want)
			}
		}
	},
	// Package setup tests what a pipeline does with its settings.
	settings.EventBusName: onItsBus, settings.EventSource: onItsBus,
	settings.ClaimCheckBytes: onItsBus, settings.DeduplicationWindow: onItsBus, settings.RedriveGrace: onItsBus,

	settings.Authentication: func(t *testing.T) {
		for _, value := range []string{settings.BySignature, settings.ByMTLS, settings.ByBoth} {
			d := deploy(t, withCertificates(t, value, paymenttest.NewCA("Operator CA")))
			if got := d.handle(event{Certificates: true}).Certificates; got.Authentication != value ||
				(len(got.CAs) > 0) != (value != settings.BySignature) {
				t.Errorf("%s: reported %+v", value, got)
			}
		}
	},
	settings.ClientCertPins: reported(settings.ClientCertPins, strings.Repeat("ab", 32),
		func(c *trusted) []string { return c.Pins }),
	settings.ClientCertSubjects: reported(settings.ClientCertSubjects, "CN=a",
		func(c *trusted) []string { return c.Subjects }),
	settings.RevokedKeys: reported(settings.RevokedKeys, strings.Repeat("cd", 32),
		func(c *trusted) []string { return c.RevokedKeys }),
}

// onItsBus tests that the function publishes with its settings.
func onItsBus(t *testing.T) {
	d := deploy(t, map[string]string{settings.EventSource.Env(): "payments.example"})
	d.record("bus", newEvent())
	d.handle(event{})
	if got := *d.bus.Entries()[0].Source; got != "payments.example" {
		t.Errorf("the source is %s", got)
	}
}

func TestEverySettingHasItsEffect(t *testing.T) {
	for _, s := range settings.RedriveSettings() {
		effect := effects[s]
		if effect == nil {
			t.Errorf("no test covers the effect of %s", s.Key)
			continue
		}
		t.Run(s.Key, effect)
	}
}
