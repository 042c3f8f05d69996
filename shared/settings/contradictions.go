package settings

import (
	"fmt"
	"strings"
	"time"
)

// contradictions reports settings of which each is valid and which together
// break a guarantee or can never work. Only the deployment is checked: a
// function must start with the environment of an older template, too. A setting
// that is wrong by itself contradicts nothing.
func (r *reader) contradictions(d Deployment) {
	w := d.Webhook

	// A webhook is authentic from timestampTolerance before its timestamp until
	// timestampTolerance after it, and is recorded up to webhookTimeout later. The
	// ledger forgets an event at a whole second.
	if w.Window != nil && r.valid(TimestampTolerance, WebhookTimeout, DeduplicationWindow) {
		if least := 2*w.Window.Tolerance + w.Timeout + time.Second; w.DeduplicationWindow < least {
			r.wrong(DeduplicationWindow, fmt.Sprintf("must be at least %s, which is twice %s plus %s and a second: a "+
				"shorter one lets a webhook be replayed",
				least, TimestampTolerance.Key, WebhookTimeout.Key))
		}
	}
	if r.valid(KeyTimeout, WebhookTimeout) && w.KeyTimeout >= w.Timeout {
		r.wrong(KeyTimeout, "must be shorter than "+WebhookTimeout.Key+", or no time is left to record the events")
	}
	if r.valid(MaxEntryBytes, ClaimCheckBytes) && w.ClaimCheckBytes >= w.MaxEntryBytes {
		r.wrong(ClaimCheckBytes, "must be less than "+MaxEntryBytes.Key)
	}

	// Every account has this bus already, and it takes no other one's name (AWS,
	// "CreateEventBus" in the EventBridge API reference).
	if w.EventBusName == "default" {
		r.wrong(EventBusName, "must not be default, which is the account's own bus: the stack creates one")
	}

	// A reference must not outlive its event: redrive sends it as long as it may
	// try, and a consumer's queue keeps it for up to 14 days.
	if d.ClaimRetention > 0 && r.valid(ClaimRetention, RedriveAttempts) {
		const day = 24 * time.Hour
		least := int((redriveTime(d.RedriveAttempts) + queueRetention + day - 1) / day)
		if d.ClaimRetention < least {
			r.wrong(ClaimRetention, fmt.Sprintf("must be at least %dd: redrive may publish a reference for as long "+
				"as %s says, and a queue keeps it for 14 days",
				least, RedriveAttempts.Key))
		}
	}

	places := []struct {
		setting *Setting
		at      string
	}{
		{SignatureHeader, "header:" + w.Scheme.SignatureHeader},
		{TimestampCarrier, w.Scheme.Timestamp.String()},
		{KeyIDCarrier, w.Scheme.KeyID.String()},
	}
	for i, a := range places {
		for _, b := range places[:i] {
			if r.valid(a.setting, b.setting) && samePlace(a.at, b.at) {
				r.wrong(a.setting, "must not be the place that "+b.setting.Key+" names")
			}
		}
	}
}

// queueRetention is how long a consumer's queue may keep a message (AWS,
// "Amazon SQS message quotas").
const queueRetention = 14 * 24 * time.Hour

// redriveTime bounds how long redrive may try to publish an event: pauses grow
// to an hour.
func redriveTime(attempts int) time.Duration { return time.Duration(attempts) * time.Hour }

// samePlace compares two carriers. The case of a header's name has no meaning.
func samePlace(a, b string) bool {
	return a == b || strings.HasPrefix(a, "header:") && strings.EqualFold(a, b)
}
