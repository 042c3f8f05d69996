package settings

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"payhook.example/shared/clientcert"
)

// relations reports combinations of valid settings that break a guarantee or can never work. Only the
// CDK app calls it: a function must also start with the environment of an older template. Settings
// that are invalid by themselves are ignored.
func (r *reader) relations() {
	d := &r.to
	if d.KeyEndpointAuth == BearerToken && !d.UsesToken() {
		r.wrong("keyEndpointAuth", "must be none, as no access token is kept with %s", r.shown("tokenStore"))
	}
	if d.StoreRejected != Off && !d.UsesSignature() {
		r.wrong("storeRejected", "must be off: with %s, there is no signature to explain, and the log names what "+
			"is wrong with a certificate", r.shown("authentication"))
	}
	// 0.0.0.0/0 and ::/0 allow every address of their version, so that with them no other network restricts anything.
	if first, second := overlapping(d.AllowedNetworks); r.valid("allowedNetworks") && first != "" {
		r.wrong("allowedNetworks", "must be networks of which none contains another, or only 0.0.0.0/0 or ::/0; "+
			"it has %s and %s", first, second)
	}
	// Every account has a bus of this name, and no other bus can use the name (AWS,
	// "CreateEventBus" in the EventBridge API reference).
	if d.EventBusName == "default" {
		r.wrong("eventBusName", "must not be default, which is the account's own bus: the stack creates one")
	}
	if !d.UsesToken() {
		r.noEffect("with "+r.shown("tokenStore"), "scopes", "credentialEncoding")
	}
	// Lambda rejects one without the other (AWS, "VpcConfig" in the Lambda API reference).
	subnets, groups := len(d.SubnetIDs) > 0, len(d.SecurityGroupIDs) > 0
	if groups && !subnets && r.valid("subnetIds") {
		r.wrong("subnetIds", "is required with %s", r.shown("securityGroupIds"))
	} else if subnets && !groups && r.valid("securityGroupIds") {
		r.wrong("securityGroupIds", "is required with %s", r.shown("subnetIds"))
	}
	r.retention()
	r.locations()
	r.endpoint()
	r.clientCertificates()
	r.serviceCA()
	r.environments()
	if !d.local { // the emulator has everything
		r.place()
	}
}

// noEffect reports those settings that are given although they have no effect.
func (r *reader) noEffect(why string, keys ...string) {
	for _, key := range keys {
		if t := r.text(ByKey(key)); t.text != "" && t.from != byDefault {
			r.invalid = append(r.invalid, key)
			r.problem(r.shown(key), "has no effect "+why)
		}
	}
}

// retention reports what is deleted while it is needed.
func (r *reader) retention() {
	d := &r.to
	// A webhook is accepted from timestampTolerance before its timestamp until timestampTolerance after it, and is
	// recorded up to webhookTimeout later. Items of the ledger expire at a whole second.
	if d.TimestampTolerance != Off && r.valid("timestampTolerance", "webhookTimeout", "deduplicationWindow") {
		if least := 2*d.TimestampTolerance + d.WebhookTimeout + time.Second; d.DeduplicationWindow < least {
			r.wrong("deduplicationWindow", "must be at least %s, which is twice %s plus %s and a second: a shorter "+
				"one lets a webhook be replayed", least, r.shown("timestampTolerance"), r.shown("webhookTimeout"))
		}
	}
	// S3 has a rejected webhook for at most three days: infra/payhook/stores.go.
	if d.StoreRejected != Off && r.valid("storeRejected", "deduplicationWindow") &&
		d.DeduplicationWindow <= 3*day {
		r.wrong("deduplicationWindow", "must be longer than 72h with %s: for so long, a rejected webhook can be "+
			"replayed, and would be published again", r.shown("storeRejected"))
	}
	// An event must exist for longer than its reference: redrive can publish the
	// reference until its last attempt, after pauses of at most an hour, the archive can deliver it again until it
	// expires there, and a consumer's queue retains it for up to 14 days (AWS, "Amazon SQS message quotas").
	if d.LargeEventRetention != Never && r.valid("largeEventRetention", "archiveRetention") {
		attempts := (RedriveAttempts*time.Hour + day - 1).Truncate(day)
		if least := attempts + 14*day + max(d.ArchiveRetention, 0); d.LargeEventRetention < least {
			r.wrong("largeEventRetention", "must be at least %d days: redrive can publish a reference until its last "+
				"attempt, the archive delivers it again with %s, and a queue retains it for 14 days", least/day,
				r.shown("archiveRetention"))
		}
	}
}

// overlapping returns two networks of which one contains the other, or makes it needless.
func overlapping(networks []string) (first, second string) {
	for i, text := range networks {
		p, _ := netip.ParsePrefix(text)
		for _, other := range networks[:i] {
			if o, _ := netip.ParsePrefix(other); p.Overlaps(o) || p.Bits() == 0 || o.Bits() == 0 {
				return other, text
			}
		}
	}
	return "", ""
}

// locations reports parts of the proof that have one location. Header names are case-insensitive.
func (r *reader) locations() {
	at := map[string]string{}
	for _, part := range [][2]string{{"signatureHeader", "header:" + r.to.SignatureHeader},
		{"timestampLocation", r.to.TimestampLocation}, {"keyIdLocation", r.to.KeyIDLocation}} {
		key, place := part[0], part[1]
		if strings.HasPrefix(place, "header:") {
			place = strings.ToLower(place)
		}
		if other := at[place]; other != "" && r.valid(key, other) {
			r.wrong(key, "must differ from %s", r.shown(other))
		}
		at[place] = key
	}
}

// endpoint reports combinations of settings of the endpoint that API Gateway rejects or that have no effect.
func (r *reader) endpoint() {
	d := &r.to
	if d.DomainName == "" {
		r.noEffect("without "+r.shown("domainName"), "certificateArn", "hostedZoneId")
		return
	}
	if d.CertificateARN == "" && d.HostedZoneID == "" && r.valid("domainName") {
		r.wrong("certificateArn", "or %s is required with %s", r.shown("hostedZoneId"), r.shown("domainName"))
	}
	// AWS, "Quotas for configuring and running an HTTP API in API Gateway".
	if d.WebhookTimeout > 30*time.Second && r.valid("webhookTimeout", "domainName") {
		r.wrong("webhookTimeout", "must be at most 30s with %s, the timeout of API Gateway", r.shown("domainName"))
	}
}

// clientCertificates reports settings of client certificates that are missing or have no
// effect, and reads the truststore, whose certificates must be valid now.
func (r *reader) clientCertificates() {
	d, by := &r.to, "with "+r.shown("authentication")
	switch {
	case !r.valid("authentication"):
		return
	case !d.UsesMTLS():
		r.noEffect(by, "truststore", "clientCertPins", "clientCertSubjects")
		return
	case d.DomainName == "":
		r.wrong("domainName", "is required %s", by)
	}
	if d.Truststore == "" {
		r.wrong("truststore", "is required %s", by)
		return
	}
	r.certificates("truststore", d.Truststore, TruststoreFile, func(text []byte) (clientcert.Truststore, error) {
		return clientcert.ParseTruststore(text, time.Now())
	})
}

// certificates reads the file of a setting, and keeps its certificates as a file of the functions' packages.
func (r *reader) certificates(key, path, file string,
	parse func([]byte) (clientcert.Truststore, error)) (cas clientcert.Truststore) {
	text, err := os.ReadFile(path)
	if err == nil {
		cas, err = parse(text)
	}
	if err != nil {
		r.wrong(key, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	r.to.files[file] = cas.PEM()
	return cas
}

// serviceCA reads the CAs of the service, which must not have expired.
func (r *reader) serviceCA() {
	d := &r.to
	if d.ServiceCA == "" {
		return
	}
	if !d.UsesSignature() && !d.UsesToken() {
		r.wrong("serviceCA", "has no effect, as neither keys nor tokens are fetched")
	}
	for i, c := range r.certificates("serviceCA", d.ServiceCA, ServiceCAFile, clientcert.ReadTruststore) {
		if time.Now().After(c.NotAfter) {
			r.wrong("serviceCA", "certificate %d (%s) has expired", i+1, clientcert.Subject(c))
		}
	}
}

// environments reports the longest setting of a function whose environment is larger than the 4 KB that Lambda takes
// (AWS, "Lambda quotas"). Lambda measures it as JSON (the error in
// https://github.com/github-aws-runners/terraform-aws-github-runner/issues/3594).
func (r *reader) environments() {
	const most, ofResources = 4 << 10, 700 // the names of resources are known at the deployment
	for _, function := range []string{"webhook", "redrive", "token"} {
		all := ReadBy(function)
		env := map[string]string{}
		for _, s := range all {
			env[s.Env()] = r.to.Text(s)
		}
		text, _ := json.Marshal(env)
		if size := len(text) + ofResources; size > most {
			s := slices.MaxFunc(all, func(a, b *Setting) int { return len(env[a.Env()]) - len(env[b.Env()]) })
			r.wrong(s.Key, "is too long: with its %d bytes, the environment variables of the %s function have "+
				"about %d, and Lambda takes %d", len(env[s.Env()]), function, size, most)
			return
		}
	}
}

// withoutFunctionURLs matches the Regions in which CloudFormation has no AWS::Lambda::Url (its registry, November
// 2026). In China, Lambda has no function URLs (https://docs.amazonaws.cn/en_us/aws/latest/userguide/lambda.html).
var withoutFunctionURLs = lazily(`^(ap-east-2|ap-south-2|ap-southeast-[4-7]|ca-west-1|cn-.+|eu-central-2|` +
	`il-central-1|me-central-1|mx-central-1|us-gov-.+)$`)

// fipsRegions are the Regions in which DynamoDB, S3, Secrets Manager, Systems Manager and EventBridge all have FIPS
// endpoints (https://aws.amazon.com/compliance/fips/, and the "fips" variants in internal/endpoints of each client of
// the SDK, November 2026). In Canada, EventBridge has none (https://docs.aws.amazon.com/general/latest/gr/ev.html).
// In AWS GovCloud (US), its FIPS endpoints have the usual names.
var fipsRegions = []string{"us-east-1", "us-east-2", "us-gov-east-1", "us-gov-west-1", "us-west-1", "us-west-2"}

// place reports what the Region of the stack does not have, and existing resources of another account or Region.
func (r *reader) place() {
	d, region := &r.to, r.stack.Region
	if d.DomainName == "" && r.valid("domainName") && withoutFunctionURLs(region) {
		r.wrong("domainName", "is required in %s, where CloudFormation cannot create function URLs", region)
	}
	// In another Region, the SDK would call names that do not exist.
	if *d.UseFIPS && !slices.Contains(fipsRegions, region) {
		r.wrong("fips", "must be false in %s: FIPS endpoints of all services are only in %s",
			cmp.Or(region, "a Region that is not known at synthesis"), strings.Join(fipsRegions, ", "))
	}
	// AWS, "Amazon EventBridge feature availability by AWS Region" in the EventBridge User Guide.
	if d.ArchiveRetention != Off && region == "ap-east-2" {
		r.wrong("archiveRetention", "must be off in %s, where EventBridge has no archives", region)
	}
	// A certificate must be in the Region of the API (AWS, "Set up a Regional custom domain name in API Gateway" in
	// the API Gateway Developer Guide). Parts that are tokens of the CDK are unknown.
	for _, key := range []string{"certificateArn", "encryption"} {
		if parts := strings.Split(d.Text(ByKey(key)), ":"); len(parts) > 5 && r.valid(key) {
			for _, problem := range r.stack.Misplaced(parts[3], parts[4]) {
				r.wrong(key, "%s", problem)
			}
		}
	}
}

// Misplaced returns the problems of a resource in a Region and account that are not those of the stack. A part is
// ignored if it is "", a token of the CDK, or unknown of the stack.
func (s Stack) Misplaced(region, account string) (problems []string) {
	for _, c := range [][3]string{{"Region", region, s.Region}, {"account", account, s.Account}} {
		what, got, want := c[0], c[1], c[2]
		if got != want && got != "" && want != "" && !strings.Contains(got, "$") {
			problems = append(problems, fmt.Sprintf("must be in the %s %s of the stack, not in %s", what, want, got))
		}
	}
	return problems
}
