package settings

import (
	"cmp"
	"encoding/json/jsontext"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/names"
)

// The ways in which webhooks are authenticated (the interface, section 5.2).
const (
	BySignature = "signature"
	ByMTLS      = "mtls"
	ByBoth      = "both"
)

// The settings of the endpoint and of mTLS.
var (
	Authentication = &Setting{Key: "authentication", Default: BySignature, Example: ByBoth, Section: "5.2",
		Description: "how webhooks are authenticated: signature, mtls (a client certificate), or both, where both " +
			"means that each is required"}
	DomainName = &Setting{Key: "domainName", Example: "webhooks.bank.example",
		Description: "the domain name of the webhook URL, which an API Gateway HTTP API serves; a function URL is " +
			"used if it is not set; required for mtls and both"}
	CertificateARN = &Setting{Key: "certificateArn",
		Example: "arn:aws:acm:eu-central-1:111122223333:certificate/11111111-2222-3333-4444-555555555555",
		Description: "the server certificate of domainName in AWS Certificate Manager, in the region of the stack; " +
			"one is requested in hostedZoneId if it is not set"}
	OwnershipCertificateARN = &Setting{Key: "ownershipCertificateArn",
		Example: "arn:aws:acm:eu-central-1:111122223333:certificate/66666666-7777-8888-9999-000000000000",
		Description: "a public certificate for domainName that ACM issued, which proves that the domain is yours; " +
			"needed for mtls and both if certificateArn was imported or issued by a private CA"}
	HostedZoneID = &Setting{Key: "hostedZoneId", Example: "Z0123456789ABCDEFGHIJ",
		Description: "the public hosted zone of domainName in Route 53, in which the alias record and the " +
			"certificate's validation record are created; without it, create the CNAME of the output DomainTarget " +
			"yourself"}
	Truststore = &Setting{Key: "truststore", Example: "truststore.pem", Section: "5.3",
		Description: "a PEM file with the certificates of the operator's CAs, up to the roots; required for mtls and " +
			"both"}
	ClientCertPins = &Setting{Key: "clientCertPins", Section: "5.3",
		Example: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		Description: "the keys that client certificates can have, joined by semicolons: SHA-256 of the subject " +
			"public key info in hexadecimal; every key if it is not set"}
	ClientCertSubjects = &Setting{Key: "clientCertSubjects", Section: "5.3",
		Example: "CN=webhooks.payments.example,O=Payments;webhooks.payments.example",
		Description: "the subjects (RFC 4514, or as openssl x509 -subject writes them) or DNS names that client " +
			"certificates can have, joined by semicolons; every subject if it is not set; with clientCertPins a " +
			"certificate must match both"}
	RevokedSerials = &Setting{Key: "revokedSerials", Example: "0a1b2c@CN=Operator CA,O=Payments", Section: "5.3",
		Description: "certificates that are rejected, joined by semicolons: SERIAL@ISSUER, with the serial number in " +
			"hexadecimal and the subject of a certificate of the truststore (RFC 4514, or as openssl x509 -issuer " +
			"writes it)"}
	ThrottleRate = &Setting{Key: "throttleRate", Default: "100", Example: "1000",
		Description: "the average number of requests per second that API Gateway forwards; more are answered 429; " +
			"with domainName only"}
)

// maxAPITimeout is the longest time that an HTTP API waits for an integration
// (AWS, "Quotas for configuring and running an HTTP API in API Gateway").
const maxAPITimeout = 30 * time.Second

// routeMethods are the methods that a route of an HTTP API can have (AWS, "Create
// routes for HTTP APIs in API Gateway").
var routeMethods = []string{"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"}

// Endpoint is the configuration of the endpoint, for the deployment.
type Endpoint struct {
	DomainName              string // "": a function URL
	CertificateARN          string // "": one is requested
	OwnershipCertificateARN string
	HostedZoneID            string
	ThrottleRate            int // requests a second
	ThrottleBurst           int // requests
	Truststore              []byte
}

// MTLS is the configuration of client certificates, for a function.
type MTLS struct {
	DomainName string // only for the webhook function
	APIID      string // only for the webhook function
	Truststore *clientcert.Truststore
	Policy     clientcert.Policy
}

// UsesSignature reports whether a webhook needs a signature.
func (w Webhook) UsesSignature() bool { return w.Authentication != ByMTLS }

// UsesMTLS reports whether a webhook needs a client certificate.
func (w Webhook) UsesMTLS() bool { return w.Authentication != BySignature }

// trustSettings returns the settings that both functions that verify client
// certificates read from their environments. The truststore is a file in their
// packages, because an environment is too small for it (AWS, "Lambda quotas": 4 KB
// in total).
func trustSettings() []*Setting {
	return []*Setting{Authentication, ClientCertPins, ClientCertSubjects, RevokedSerials}
}

func (r *reader) authentication() string {
	return r.choice(Authentication, BySignature, ByMTLS, ByBoth)
}

var (
	// RFC 1123, section 2.1, in lower case, with at least one dot.
	domainName     = lazily(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	certificateARN = lazily(`^arn:[a-z-]+:acm:[a-z0-9-]+:[0-9]{12}:certificate/[A-Za-z0-9-]+$`)
	hostedZoneID   = lazily(`^Z[A-Z0-9]{1,31}$`)
	dnsName        = only(lower + upper + digits + ".*_-")
)

// policy reads the policy for client certificates.
func (r *reader) policy() (p clientcert.Policy) {
	for _, text := range list(r.text(ClientCertPins)) {
		pin, err := clientcert.ParsePin(text)
		if err != nil {
			r.wrong(ClientCertPins, err.Error())
			break
		}
		p.Pins = append(p.Pins, pin)
	}
	for _, text := range list(r.text(ClientCertSubjects)) {
		if dnsName(text) {
			p.DNSNames = append(p.DNSNames, text)
			continue
		}
		name, err := clientcert.ParseName(text)
		if err != nil {
			r.wrong(ClientCertSubjects, err.Error()+", or a DNS name")
			break
		}
		p.Subjects = append(p.Subjects, name)
	}
	for _, text := range list(r.text(RevokedSerials)) {
		serial, err := clientcert.ParseSerial(text)
		if err != nil {
			r.wrong(RevokedSerials, err.Error())
			break
		}
		p.Revoked = append(p.Revoked, serial)
	}
	return p
}

// list splits text at semicolons. A semicolon that is quoted, or after a backslash, is
// part of a name.
func list(text string) (parts []string) {
	start, quoted, escaped := 0, false, false
	for i, c := range text + ";" {
		switch {
		case i < len(text) && (escaped || c == '\\'):
			escaped = !escaped
		case c == '"':
			quoted = !quoted
		case i == len(text) || c == ';' && !quoted:
			if part := strings.TrimSpace(text[start:i]); part != "" {
				parts = append(parts, part)
			}
			start = i + 1
		}
	}
	return parts
}

// maxThrottleBurst is the burst of an account (AWS, "Amazon API Gateway quotas").
const maxThrottleBurst = 5000

// endpoint reads the configuration of the endpoint. The truststore's certificates
// must be valid at the time now.
func (r *reader) endpoint(w Webhook, now time.Time) Endpoint {
	e := Endpoint{
		DomainName:     r.optional(DomainName, domainName, "a domain name in lower case"),
		CertificateARN: r.optional(CertificateARN, certificateARN, "the ARN of a certificate in ACM"),
		OwnershipCertificateARN: r.optional(OwnershipCertificateARN, certificateARN,
			"the ARN of a certificate in ACM"),
		HostedZoneID: r.optional(HostedZoneID, hostedZoneID, "the id of a hosted zone"),
		ThrottleRate: r.integer(ThrottleRate, 1, 10000),
	}
	e.ThrottleBurst = min(2*e.ThrottleRate, maxThrottleBurst)
	mtls := r.valid(Authentication) && w.UsesMTLS()
	switch {
	case e.DomainName == "" && mtls:
		r.wrong(DomainName, "is required, as "+r.name(Authentication)+" is "+w.Authentication)
	case e.DomainName == "":
		for _, s := range []*Setting{CertificateARN, OwnershipCertificateARN, HostedZoneID} {
			if r.text(s) != "" {
				r.wrong(s, "needs "+r.name(DomainName))
			}
		}
	case e.CertificateARN == "" && e.HostedZoneID == "":
		r.wrong(CertificateARN, "or "+r.name(HostedZoneID)+" is required with "+r.name(DomainName))
	case w.Timeout > maxAPITimeout:
		r.wrong(WebhookTimeout, "must be at most 30s with "+r.name(DomainName)+", the timeout of API Gateway")
	}
	if e.DomainName != "" && r.valid(HTTPMethod) && !slices.Contains(routeMethods, w.HTTPMethod) {
		r.wrong(HTTPMethod, "must be "+strings.Join(routeMethods, ", ")+" with "+r.name(DomainName)+
			": a route of API Gateway has no other")
	}
	for _, s := range []*Setting{Truststore, ClientCertPins, ClientCertSubjects, RevokedSerials} {
		if r.valid(Authentication) && !mtls && r.text(s) != "" {
			r.wrong(s, "has no effect, as "+r.name(Authentication)+" is "+w.Authentication)
		}
	}
	if mtls {
		p := r.policy()
		var store *clientcert.Truststore
		if e.Truststore, store = r.truststore(now); store != nil && r.valid(RevokedSerials) {
			r.issuers(p, store)
		}
	}
	return e
}

// truststore returns the content of the file that the setting names, and nil if it is
// not valid.
func (r *reader) truststore(now time.Time) ([]byte, *clientcert.Truststore) {
	path := r.text(Truststore)
	if path == "" {
		r.wrong(Truststore, "is required, as "+r.name(Authentication)+" is "+r.text(Authentication))
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		r.wrong(Truststore, "can't be read: "+err.Error())
		return nil, nil
	}
	store, err := clientcert.ParseTruststore(text, now)
	if err != nil {
		r.wrong(Truststore, path+": "+strings.ReplaceAll(err.Error(), "\n", "; "))
		return nil, nil
	}
	return text, store
}

// issuers reports the revoked certificates that no certificate of the truststore can
// have issued. Such an entry has no effect, so its certificate would stay valid.
func (r *reader) issuers(p clientcert.Policy, store *clientcert.Truststore) {
	var subjects, unknown []string
	for _, c := range store.Certificates() {
		subjects = append(subjects, string(clientcert.SubjectName(c)))
	}
	for _, revoked := range p.Revoked {
		if !slices.Contains(subjects, string(revoked.Issuer)) {
			unknown = append(unknown, revoked.Number+"@"+string(revoked.Issuer))
		}
	}
	if len(unknown) > 0 {
		r.wrong(RevokedSerials, strings.Join(unknown, "; ")+": the issuer must be the subject of a certificate of "+
			r.name(Truststore)+": "+strings.Join(subjects, "; "))
	}
}

// packageFolder returns the folder of a function's package: that of the variable
// LAMBDA_TASK_ROOT (AWS, "Working with Lambda environment variables"), or else the
// folder of the program.
func packageFolder(getenv func(string) string) string {
	if folder := getenv("LAMBDA_TASK_ROOT"); folder != "" {
		return folder
	}
	program, _ := os.Executable()
	return filepath.Dir(program) // without a program, the current folder
}

// mtls reads the webhook function's configuration of client certificates. folder is
// the folder of its package.
func (r *reader) mtls(folder string) *MTLS {
	m := r.trust(folder)
	m.DomainName = r.matching(DomainName, domainName, "a domain name in lower case")
	m.APIID = r.resource(names.APIIDEnv)
	return m
}

// trust reads the truststore and the policy for client certificates.
func (r *reader) trust(folder string) *MTLS {
	m := &MTLS{Policy: r.policy()}
	text, err := os.ReadFile(filepath.Join(folder, names.TruststoreFile))
	if err != nil {
		r.wrong(Truststore, names.TruststoreFile+" can't be read in the function's package")
		return m
	}
	// A certificate that has expired since the deployment does not stop the function.
	// Verification rejects it, and the alarm on TrustDaysLeft is raised before.
	if m.Truststore, err = clientcert.ReadTruststore(text); err != nil {
		r.wrong(Truststore, err.Error())
	}
	return m
}

// The environment of a function has at most 4 KB (AWS, "Lambda quotas" in the
// Lambda Developer Guide). Lambda measures it as JSON. resourceBytes is reserved
// for the variables that name resources.
const (
	maxEnvironmentBytes = 4 << 10
	resourceBytes       = 1 << 10
)

// environmentSize reports an environment that is too large for Lambda, and its
// longest settings.
func (r *reader) environmentSize() {
	for _, conf := range [][]*Setting{WebhookSettings(), RedriveSettings(), TokenSettings()} {
		size := resourceBytes
		for _, s := range conf {
			size += environmentBytes(s, r.text(s))
		}
		if size <= maxEnvironmentBytes {
			continue
		}
		slices.SortStableFunc(conf, func(a, b *Setting) int {
			return cmp.Compare(environmentBytes(b, r.text(b)), environmentBytes(a, r.text(a)))
		})
		longest := make([]string, 3)
		for i, s := range conf[:len(longest)] {
			longest[i] = fmt.Sprintf("%s (%d)", s.Key, environmentBytes(s, r.text(s)))
		}
		r.wrong(conf[0], fmt.Sprintf("the environment of a function would have %d bytes, %d more than Lambda allows; "+
			"shorten %s",
			size, size-maxEnvironmentBytes, strings.Join(longest, ", ")))
		return
	}
}

// environmentBytes returns the size of a variable in JSON, with its separators.
func environmentBytes(s *Setting, value string) int {
	quoted, _ := jsontext.AppendQuote(nil, value) // a value that is not UTF-8 is replaced by one that is
	return len(s.Env()) + len(quoted) + len(`"":,`)
}
