package settings

import (
	"fmt"
	"strings"
	"time"
)

// contradictions reports combinations of valid settings that break a guarantee or
// can never work. Only the deployment calls it: a function must also start with the
// environment of an older template. Settings that are invalid by themselves are
// ignored.
func (r *reader) contradictions(d Deployment) {
	w := d.Webhook

	// A webhook is accepted from timestampTolerance before its timestamp until
	// timestampTolerance after it, and is recorded up to webhookTimeout later. Items
	// of the ledger expire at a whole second.
	if w.Window != nil && r.valid(TimestampTolerance, WebhookTimeout, DeduplicationWindow) {
		if least := 2*w.Window.Tolerance + w.Timeout + time.Second; w.DeduplicationWindow < least {
			r.wrong(DeduplicationWindow, fmt.Sprintf("must be at least %s, which is twice %s plus %s and a second: a "+
				"shorter one lets a webhook be replayed",
				least, TimestampTolerance.Key, WebhookTimeout.Key))
		}
	}
	if d.CaptureRejected > 0 && !w.UsesSignature() {
		r.wrong(CaptureRejected, "must be off with authentication=mtls: there is no signature to explain, and the log "+
			"names what is wrong with a certificate")
	}

	// Every account has a bus of this name, and no other bus can use the name (AWS,
	// "CreateEventBus" in the EventBridge API reference).
	if w.EventBusName == "default" {
		r.wrong(EventBusName, "must not be default, which is the account's own bus: the stack creates one")
	}

	// An event must exist for longer than its reference: redrive can publish the
	// reference until its last attempt, the archive can deliver it again until it expires
	// there, and a consumer's queue retains it for up to 14 days.
	if d.ClaimRetention > 0 && r.valid(ClaimRetention, RedriveAttempts, ArchiveRetention) {
		const day = 24 * time.Hour
		least := int((redriveTime(d.RedriveAttempts)+queueRetention+day-1)/day) + d.ArchiveRetention
		if d.ClaimRetention < least {
			r.wrong(ClaimRetention, fmt.Sprintf("must be at least %dd: redrive can publish a reference until its "+
				"last attempt, the archive can deliver it again for as long as %s says, and a queue retains it for 14 "+
				"days", least, ArchiveRetention.Key))
		}
	}

	r.encryptionKeys(d)
	r.carriersDiffer(w)
}

// encryptionKeys reports existing resources that no permission can reach, and keys that
// cannot be those of the stack's resources: a service uses a key of its own Region.
func (r *reader) encryptionKeys(d Deployment) {
	var existing []string
	for _, s := range []*Setting{LedgerTable, ClaimBucket, ParkingBucket} {
		if r.text(s) != "" {
			existing = append(existing, s.Key)
		}
	}
	if d.Encryption == EncryptionCMK && len(existing) > 0 && r.text(FurtherEncryptionKeys) == "" {
		r.wrong(
			FurtherEncryptionKeys,
			"must name the keys of "+strings.Join(existing, ", ")+", or be aws if they have "+
				"none: the key that encryption=cmk creates is another one",
		)
	}
	region := ""
	for _, key := range append([]string{d.Encryption}, d.FurtherEncryptionKeys...) {
		parts := strings.Split(key, ":")
		if len(parts) < 6 || !r.valid(FurtherEncryptionKeys) {
			continue
		}
		if region != "" && parts[3] != region {
			r.wrong(FurtherEncryptionKeys, "must name keys of one Region, that of the stack; "+key+" is not in "+region)
		}
		region = parts[3]
	}
}

// carriersDiffer reports parts of the proof that have one carrier.
func (r *reader) carriersDiffer(w Webhook) {
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
				r.wrong(a.setting, "must differ from "+b.setting.Key)
			}
		}
	}
}

// queueRetention is the maximum retention of a message in a consumer's queue (AWS,
// "Amazon SQS message quotas").
const queueRetention = 14 * 24 * time.Hour

// redriveTime returns an upper limit for the time in which redrive makes its
// attempts to publish an event: a pause lasts at most an hour.
func redriveTime(attempts int) time.Duration { return time.Duration(attempts) * time.Hour }

// samePlace reports whether two carriers are equal. Header names are case-insensitive.
func samePlace(a, b string) bool {
	return a == b || strings.HasPrefix(a, "header:") && strings.EqualFold(a, b)
}
