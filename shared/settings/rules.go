package settings

import (
	"cmp"
	"encoding/json/jsontext"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"payhook.example/shared/clientcert"
)

// contradictions reports combinations of valid settings that break a guarantee or
// can never work. Only the deployment calls it: a function must also start with the
// environment of an older template. Settings that are invalid by themselves are
// ignored.
func (r *reader) contradictions(d *Deployment) {
	w := &d.Webhook

	// A webhook is accepted from timestampTolerance before its timestamp until
	// timestampTolerance after it, and is recorded up to webhookTimeout later. Items
	// of the ledger expire at a whole second.
	if w.Window != nil && r.valid(TimestampTolerance, WebhookTimeout, DeduplicationWindow) {
		if least := 2*w.Window.Tolerance + w.Timeout + time.Second; w.DeduplicationWindow < least {
			r.wrong(DeduplicationWindow, fmt.Sprintf("must be at least %s, which is twice %s plus %s and a second: a "+
				"shorter one lets a webhook be replayed", least, r.name(TimestampTolerance), r.name(WebhookTimeout)))
		}
	}
	if r.valid(KeyMaxAge, KeyFreshness) && w.KeyMaxAge < w.KeyFreshness {
		r.wrong(KeyMaxAge, "must not be shorter than "+r.name(KeyFreshness))
	}
	if d.CaptureRejected > 0 && !w.UsesSignature() {
		r.wrong(CaptureRejected, "must be off, as "+r.name(Authentication)+" is mtls: there is no signature to "+
			"explain, and the log names what is wrong with a certificate")
	}

	// Every account has a bus of this name, and no other bus can use the name (AWS,
	// "CreateEventBus" in the EventBridge API reference).
	if w.EventBusName == "default" && !r.given.Unchecked[EventBusName.Key] {
		r.wrong(EventBusName, "must not be default, which is the account's own bus: the stack creates one")
	}

	// An event must exist for longer than its reference: redrive can publish the
	// reference until its last attempt, the archive can deliver it again until it expires
	// there, and a consumer's queue retains it for up to 14 days.
	if d.ClaimRetention > 0 && r.valid(ClaimRetention, RedriveAttempts, ArchiveRetention) {
		// A pause of redrive lasts at most an hour.
		attempts := (time.Duration(d.RedriveAttempts)*time.Hour + day - 1) / day
		least := int(attempts) + minRetention - 1 + d.ArchiveRetention
		if d.ClaimRetention < least {
			r.wrong(ClaimRetention, fmt.Sprintf("must be at least %dd: redrive can publish a reference until its "+
				"last attempt, the archive can deliver it again for as long as %s says, and a queue retains it for 14 "+
				"days", least, r.name(ArchiveRetention)))
		}
	}
	if _, ok := r.given.Texts[EvidenceLock.Key]; ok && d.EvidenceRetention == 0 && r.valid(Evidence) {
		r.wrong(EvidenceLock, "has no effect without "+r.name(Evidence))
	}
	r.encryptionKeys(d)
	r.carriersDiffer()
}

// withoutFunctionURLs matches the Regions in which CloudFormation has no AWS::Lambda::Url (its registry, November
// 2026). In China, Lambda has no function URLs (https://docs.amazonaws.cn/en_us/aws/latest/userguide/lambda.html).
var withoutFunctionURLs = lazily(`^(ap-east-2|ap-south-2|ap-southeast-[4-7]|ca-west-1|cn-.+|eu-central-2|` +
	`il-central-1|me-central-1|mx-central-1|us-gov-.+)$`)

// place reports what the Region of the stack does not have, and existing resources of another account or Region.
func (r *reader) place(d *Deployment) {
	if d.Local { // the emulator has everything
		return
	}
	region := r.given.Region
	if d.Endpoint.DomainName == "" && r.valid(DomainName) && withoutFunctionURLs(region) {
		r.wrong(DomainName, "is required in "+region+", where CloudFormation cannot create function URLs")
	}
	// AWS, "Amazon EventBridge feature availability by AWS Region" in the EventBridge User Guide.
	if d.ArchiveRetention > 0 && region == "ap-east-2" {
		r.wrong(ArchiveRetention, "must be off in "+region+", where EventBridge has no archives")
	}
	// A certificate must be in the Region of the API (AWS, "Set up a Regional custom domain name in API Gateway" in
	// the API Gateway Developer Guide).
	for _, s := range []*Setting{CertificateARN, OwnershipCertificateARN, Encryption} {
		if r.valid(s) {
			r.elsewhere(s, r.text(s))
		}
	}
	r.elsewhere(EventBusName, r.given.BusARN)
}

// elsewhere reports an ARN of another account or Region than the stack's.
func (r *reader) elsewhere(s *Setting, arn string) {
	for i, what := range []string{regionPart: "Region", accountPart: "account"} {
		if got, want := part(arn, i), part(r.given.place(), i); got != "" && want != "" && got != want {
			r.wrong(s, "must be in the "+what+" "+want+" of the stack, not in "+got)
		}
	}
}

const regionPart, accountPart = 3, 4 // of an ARN

// part returns a part of an ARN. It is "" in another text, and if it is unknown: a token of the CDK.
func part(arn string, i int) string {
	parts := strings.Split(arn, ":")
	if len(parts) < 6 || strings.Contains(parts[i], "${Token[") {
		return ""
	}
	return parts[i]
}

// encryptionKeys reports existing resources that no permission can reach, and keys that
// cannot be those of the stack's resources: a service uses a key of its own Region.
func (r *reader) encryptionKeys(d *Deployment) {
	if !r.valid(Encryption, FurtherEncryptionKeys) {
		return
	}
	var existing []string
	for _, s := range []*Setting{LedgerTable, ClaimBucket, ParkingBucket} {
		if r.text(s) != "" {
			existing = append(existing, r.name(s))
		}
	}
	if d.Encryption == EncryptionCMK && len(existing) > 0 && r.text(FurtherEncryptionKeys) == "" {
		r.wrong(FurtherEncryptionKeys, "must name the keys of "+strings.Join(existing, ", ")+
			", or be aws if they have none: the key that is created, as "+r.name(Encryption)+" is cmk, is another one")
	}
	region := cmp.Or(part(r.given.place(), regionPart), part(d.Encryption, regionPart))
	for _, key := range d.FurtherEncryptionKeys {
		if region = cmp.Or(region, part(key, regionPart)); part(key, regionPart) != region {
			r.wrong(FurtherEncryptionKeys, "must name keys of one Region, that of the stack; "+key+" is not in "+region)
		}
	}
}

// carriersDiffer reports parts of the proof that have one carrier. Header names are
// case-insensitive.
func (r *reader) carriersDiffer() {
	at := map[string]*Setting{}
	for _, s := range []*Setting{SignatureHeader, TimestampCarrier, KeyIDCarrier} {
		place := r.text(s)
		if s == SignatureHeader {
			place = "header:" + place
		}
		if strings.HasPrefix(place, "header:") {
			place = strings.ToLower(place)
		}
		if other := at[place]; other != nil && r.valid(s, other) {
			r.wrong(s, "must differ from "+r.name(other))
		}
		at[place] = s
	}
}

// maxAPITimeout is the longest time that an HTTP API waits for an integration
// (AWS, "Quotas for configuring and running an HTTP API in API Gateway").
const maxAPITimeout = 30 * time.Second

// endpoint reports combinations of settings of the endpoint that API Gateway rejects or
// that have no effect.
func (r *reader) endpoint(d *Deployment) {
	if !r.valid(DomainName) {
		return
	}
	if d.Endpoint.DomainName == "" {
		for _, s := range []*Setting{CertificateARN, OwnershipCertificateARN, HostedZoneID} {
			if r.text(s) != "" {
				r.wrong(s, "needs "+r.name(DomainName))
			}
		}
		return
	}
	if r.text(CertificateARN) == "" && r.text(HostedZoneID) == "" {
		r.wrong(CertificateARN, "or "+r.name(HostedZoneID)+" is required with "+r.name(DomainName))
	}
	if d.Webhook.Timeout > maxAPITimeout {
		r.wrong(WebhookTimeout, "must be at most 30s with "+r.name(DomainName)+", the timeout of API Gateway")
	}
}

// clientCertificates reports settings of client certificates that are missing or have no
// effect, and reads the truststore. Its certificates must be valid at the time now.
func (r *reader) clientCertificates(d *Deployment, now time.Time) {
	if !r.valid(Authentication) {
		return
	}
	because := ", as " + r.name(Authentication) + " is " + d.Webhook.Authentication
	if !d.Webhook.UsesMTLS() {
		for _, s := range []*Setting{Truststore, ClientCertPins, ClientCertSubjects, RevokedKeys} {
			if r.text(s) != "" {
				r.wrong(s, "has no effect"+because)
			}
		}
		return
	}
	if r.text(DomainName) == "" {
		r.wrong(DomainName, "is required"+because)
	}
	path := r.text(Truststore)
	if path == "" {
		r.wrong(Truststore, "is required"+because)
		return
	}
	text, err := os.ReadFile(path)
	if err != nil {
		r.wrong(Truststore, "can't be read: "+err.Error())
		return
	}
	if _, err := clientcert.ParseTruststore(text, now); err != nil {
		r.wrong(Truststore, path+": "+strings.ReplaceAll(err.Error(), "\n", "; "))
		return
	}
	d.Endpoint.Truststore = text
}

// The environment of a function has at most 4 KB (AWS, "Lambda quotas" in the
// Lambda Developer Guide). Lambda measures it as JSON. resourceBytes is reserved
// for the variables that name resources.
const (
	maxEnvironmentBytes = 4 << 10
	resourceBytes       = 1 << 10
)

// environmentSize reports an environment that is too large for Lambda, by its longest
// setting.
func (r *reader) environmentSize() {
	for _, conf := range [][]*Setting{WebhookSettings(), RedriveSettings(), TokenSettings()} {
		size := resourceBytes
		for _, s := range conf {
			size += environmentBytes(s, r.text(s))
		}
		if size <= maxEnvironmentBytes {
			continue
		}
		longest := slices.MaxFunc(conf, func(a, b *Setting) int { return cmp.Compare(len(r.text(a)), len(r.text(b))) })
		r.wrong(longest, fmt.Sprintf("must be shorter: it has %d bytes, and the environment of a function would have "+
			"%d "+
			"more than Lambda allows", environmentBytes(longest, r.text(longest)), size-maxEnvironmentBytes))
		return
	}
}

// environmentBytes returns the size of a variable in JSON, with its separators.
func environmentBytes(s *Setting, value string) int {
	quoted, _ := jsontext.AppendQuote(nil, value) // a value that is not UTF-8 is replaced by one that is
	return len(s.Env()) + len(quoted) + len(`"":,`)
}
