package settings

import (
	"errors"
	"net/mail"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/http/httpguts"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/signature"
)

// form is what a text, or each element of a list, must be.
type form struct {
	example string
	check   func(text string) error
	// token is whether a token of the CDK is valid: the id of a resource can be unknown until the deployment.
	token bool
}

// forms are the forms by their names in the tag form.
var forms = map[string]form{
	"text": {example: "manager-1", check: must("be a text that is not blank",
		func(text string) bool { return strings.TrimSpace(text) != "" })},
	"url": {example: "https://api.payments.example", check: valid(parseURL)},

	"status":   {check: must("be a status from 200 to 299", lazily(`^2\d\d$`))},
	"header":   {example: "X-Signature", check: must("be the name of a header", httpguts.ValidHeaderFieldName)},
	"location": {example: "query:timestamp", check: valid(signature.ParseLocation)},
	"key id":   {example: "header:X-Key-Id", check: valid(signature.ParseKeyIDLocation)},
	// RFC 6749, section 3.3.
	"scopes": {example: "payments.read payments.write",
		check: must("be visible ASCII without quotation marks and backslashes, joined by spaces",
			func(text string) bool { return !strings.ContainsFunc(text, notOfScope) })},

	// RFC 1123, section 2.1, with at least one dot.
	"domain": {example: "webhooks.bank.example", check: must("be a domain name in lower case",
		lazily(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`))},
	"certificate": {
		example: "arn:aws:acm:eu-central-1:111122223333:certificate/11111111-2222-3333-4444-555555555555",
		check: must("be the ARN of a certificate in ACM",
			lazily(`^arn:[a-z-]+:acm:[a-z0-9-]+:[0-9]{12}:certificate/[A-Za-z0-9-]+$`)), token: true},
	"zone": {example: "Z0123456789ABCDEFGHIJ",
		check: must("be the id of a hosted zone", lazily(`^Z[A-Z0-9]{1,31}$`)), token: true},
	"pin": {example: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		check: valid(clientcert.ParsePin)},
	"revocation": {example: "6f1c8f0e-6a50-4c6c-9c55-0d3a2b1e4f60;NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs",
		check: valid(clientcert.ParseRevocation)},
	"subject": {example: "CN=webhooks.payments.example,O=Payments;webhooks.payments.example",
		check: valid(clientcert.ParseSubject)},
	"network": {example: "192.0.2.0/24;2001:db8:1::/48",
		check: must("be networks of IPv4 or IPv6 in CIDR notation without host bits", isNetwork)},
	// AWS, "Resource IDs" in the EC2 User Guide: 8 or 17 characters.
	"subnet": {example: "subnet-0123456789abcdef0;subnet-0123456789abcdef1", token: true,
		check: must("be ids of subnets", lazily(`^subnet-([0-9a-f]{8}|[0-9a-f]{17})$`))},
	"security group": {example: "sg-0123456789abcdef0", token: true,
		check: must("be ids of security groups", lazily(`^sg-([0-9a-f]{8}|[0-9a-f]{17})$`))},
	// AWS, "Key identifiers (KeyId)" in the KMS Developer Guide. Aliases are not
	// accepted, because an alias can be moved to another key, and permissions name keys.
	"encryption": {example: EncryptionCMK, check: must("be aws, cmk, or the ARN of a key (not of an alias)",
		lazily(`^(aws|cmk|arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/[A-Za-z0-9-]+)$`)), token: true},

	"evidence": {example: "7y", check: must("be off, or whole days from 1d to 36500d, which governance (the "+
		"default) or compliance can follow", isEvidence)},
	"concurrency": {check: must("be a number from 1 to 100000", lazily(`^([1-9]\d{0,4}|100000)$`))},
	"log days": {check: must("be one of "+logDays, func(text string) bool {
		return slices.Contains(strings.Fields(logDays), text)
	})},
	"email": {example: "payments-oncall@example.com", check: must("be an e-mail address", isPlainAddress)},

	// AWS, "CreateEventBus" in the EventBridge API reference. Only those of partners have a slash.
	"bus": {example: "payments", check: must("be at most 256 letters, digits, '.', '_' and '-'",
		lazily(`^[A-Za-z0-9._-]{1,256}$`))},
	// AWS, "CreateTable" in the DynamoDB API reference.
	"table": {example: "Payhook-Ledger1A2B3C4D-EXAMPLE", check: must("be the name of a DynamoDB table",
		lazily(`^[A-Za-z0-9_.-]{3,255}$`))},
	// AWS, "General purpose bucket naming rules" in the S3 User Guide.
	"bucket": {example: "payhook-large-events1a2b3c4d-example", check: must("be the name of an S3 bucket",
		lazily(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`))},
	// CloudFormation accepts 128 characters (AWS, "CreateStack" in the CloudFormation
	// API reference); the display name of a topic has at most 100.
	"stack": {example: "PayhookStaging",
		check: must("be letters, digits and hyphens, starting with a letter, at most 100",
			lazily(`^[A-Za-z][A-Za-z0-9-]{0,99}$`))},
}

// logDays are the values of PutRetentionPolicy (AWS, CloudWatch Logs API reference).
const logDays = "1 3 5 7 14 30 60 90 120 150 180 365 400 545 731 1096 1827 2192 2557 2922 3288 3653"

// must returns a check that a text is what matches says.
func must(be string, matches func(text string) bool) func(string) error {
	return func(text string) error {
		if !matches(text) {
			return errors.New("must " + be)
		}
		return nil
	}
}

// valid returns a check that a text can be parsed.
func valid[T any](parse func(string) (T, error)) func(string) error {
	return func(text string) error { _, err := parse(text); return err }
}

// lazily returns a function that matches a regular expression, which is compiled at its
// first use: a function starts without those that only the CDK app uses.
func lazily(expression string) func(string) bool {
	compiled := sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
	return func(text string) bool { return compiled().MatchString(text) }
}

// isPlainAddress matches an e-mail address without name and brackets, in a domain with a dot.
func isPlainAddress(text string) bool {
	address, err := mail.ParseAddress(text)
	return err == nil && address.Address == text && strings.Contains(text[strings.LastIndex(text, "@"):], ".")
}

func isEvidence(text string) bool {
	duration, mode, ok := strings.Cut(text, " ")
	d, err := ParseDuration(duration)
	return text == "off" || err == nil && d >= day && d <= 36500*day && d%day == 0 &&
		(!ok || mode == "governance" || mode == "compliance")
}

func notOfScope(c rune) bool { return c < ' ' || c > '~' || c == '"' || c == '\\' }

func isNetwork(text string) bool {
	p, err := netip.ParsePrefix(text)
	return err == nil && p == p.Masked() && !p.Addr().Is4In6()
}

// parseURL reads an https URL, or an http URL of a loopback address, without query,
// fragment or user. It removes a trailing slash.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "":
		return nil, errors.New("must be an https URL")
	case u.Scheme != "https" && !(u.Scheme == "http" && isLoopback(u.Hostname())):
		return nil, errors.New("must be an https URL; http is for loopback addresses only")
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, errors.New("must have no user, query or fragment")
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), ""
	return u, nil
}

func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, _ := netip.ParseAddr(host) // the zero Addr is no loopback address
	return ip.IsLoopback()
}
