package settings

import (
	"cmp"
	"crypto/x509"
	"errors"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/signature"
)

// Function is the configuration of a function: the settings and the resources that it reads. Others are zero.
// LedgerTable, ClaimBucket, ParkingBucket and EventBusName are those of the deployment.
type Function struct {
	Settings

	// These are what the settings say.
	KeyService   *url.URL // BaseURL
	TokenService *url.URL // AuthURL
	Scheme       signature.Scheme
	Networks     []netip.Prefix         // AllowedSources; none: every source address
	MTLS         *MTLS                  // nil: no client certificate is required
	ServiceCAs   *x509.CertPool         // those of the system and of ServiceCA; nil: those of the system
	Revoked      clientcert.Revocations // RevokedKeys
	Proof        map[string]string      // the texts of what decides whether a signature verifies, by their keys

	KeysTable         string
	TokenSecret       string    // name or ARN; "" if TokenParameter is set
	TokenParameter    string    // name; "" if TokenSecret is set
	TokenKey          string    // ARN of the key of TokenParameter; "" for that of AWS
	CredentialsSecret string    // name or ARN
	EvidenceBucket    string    // takes a record of each accepted delivery; "" for none
	CaptureUntil      time.Time // until when rejected webhooks are stored; zero: none are
	MaxEntryBytes     int
	RedriveGrace      time.Duration
}

// MTLS is the configuration of client certificates.
type MTLS struct {
	DomainName string // only for the webhook function
	APIID      string // only for the webhook function
	Truststore *clientcert.Truststore
	Policy     clientcert.Policy
}

// ParseFunction parses the environment of the webhook, redrive or token function.
func ParseFunction(name string, getenv func(string) string) (Function, error) {
	return fromEnvironment(getenv).parse(name)
}

func (r *reader) parse(name string) (Function, error) {
	f := r.function(name)
	r.serviceCAs(&f)
	if name == "token" {
		r.token(&f)
		f.CredentialsSecret = r.resource(CredentialsSecretEnv)
		return f, r.err()
	}
	f.LedgerTable, f.EventBusName = r.resource(LedgerTableEnv), r.resource(EventBusNameEnv)
	f.ClaimBucket, f.ParkingBucket = r.resource(ClaimBucketEnv), r.resource(ParkingBucketEnv)
	f.RedriveGrace = cmp.Or(variable(r, RedriveGraceEnv, time.ParseDuration), RedriveGrace)
	// The limit of the total size of a request of PutEvents, which must be less, depends on
	// the Region (AWS, "PutEvents" in the EventBridge API reference, and in the reference
	// for China). Lambda sets AWS_REGION (AWS, "Working with Lambda environment variables").
	f.MaxEntryBytes = 1 << 20
	if strings.HasPrefix(r.getenv("AWS_REGION"), "cn-") {
		f.MaxEntryBytes = 256 << 10
	}
	if f.UsesMTLS() {
		f.MTLS = r.trust(f)
	}
	// What finds webhooks authentic. The redrive function has it for rejected webhooks, with captureRejected.
	f.KeysTable, f.EvidenceBucket = r.getenv(KeysTableEnv), r.getenv(EvidenceBucketEnv)
	if name == "webhook" && f.UsesSignature() {
		f.KeysTable = r.resource(KeysTableEnv)
	}
	if name == "webhook" && f.UsesMTLS() {
		f.MTLS.DomainName, f.MTLS.APIID = r.resource(Named("domainName").Env()), r.resource(APIIDEnv)
	}
	if f.KeysAuth == BearerToken && (name == "webhook" || f.KeysTable != "") {
		r.token(&f)
	}
	f.CaptureUntil = variable(r, CaptureUntilEnv,
		func(text string) (time.Time, error) { return time.Parse(time.RFC3339, text) })
	return f, r.err()
}

// ParseProof parses those settings that decide whether the signature of a webhook verifies.
// texts are the texts by their keys; others are ignored.
func ParseProof(texts map[string]string) (Function, error) {
	r := &reader{value: func(s *Setting) Value { return Value{Text: TextIn(texts, s.Key)} }}
	f := r.function("proof")
	r.locations()
	return f, r.err()
}

// fromEnvironment returns a reader of a function's environment. A missing variable means the default of its setting, so
// a function starts with the environment of a template that does not define the setting yet. Variables without a
// default are required: the names of resources, including the bus, and the required settings.
func fromEnvironment(getenv func(string) string) *reader {
	return &reader{
		value:  func(s *Setting) Value { return Value{Text: cmp.Or(getenv(s.Env()), s.Default), Name: s.Env()} },
		getenv: getenv,
		file:   func(name string) ([]byte, error) { return packaged(getenv, name) },
	}
}

// function returns the settings that a program reads, and what they say.
func (r *reader) function(program string) Function {
	r.read(ReadBy(program))
	f := Function{Settings: r.to.Settings, Proof: map[string]string{}}
	for _, s := range ReadBy("proof") {
		f.Proof[s.Key] = r.value(s).Text
	}
	// The problems of texts are reported already.
	f.KeyService, _ = parseURL(f.BaseURL)
	f.TokenService, _ = parseURL(f.AuthURL)
	f.Scheme = signature.Scheme{SignatureHeader: f.SignatureHeader,
		Timestamp: signature.Location(f.TimestampLocation), KeyID: signature.Location(f.KeyIDLocation)}
	for _, text := range f.AllowedSources {
		network, _ := netip.ParsePrefix(text)
		f.Networks = append(f.Networks, network)
	}
	for _, text := range f.RevokedKeys {
		name, _ := clientcert.ParseRevocation(text)
		f.Revoked = append(f.Revoked, name)
	}
	return f
}

// resource returns a variable that names a resource of a function.
func (r *reader) resource(env string) string {
	v := r.getenv(env)
	if v == "" {
		r.problem(env, "is required")
	}
	return v
}

// variable parses a variable, which can be absent.
func variable[T any](r *reader, env string, parse func(text string) (T, error)) (v T) {
	text := r.getenv(env)
	if text == "" {
		return v
	}
	v, err := parse(text)
	if err != nil {
		r.problem(env, err.Error())
	}
	return v
}

// token sets where the access token is kept.
func (r *reader) token(f *Function) {
	f.TokenParameter, f.TokenKey = r.getenv(TokenParameterEnv), r.getenv(TokenKeyEnv)
	if f.TokenParameter == "" {
		f.TokenSecret = r.resource(TokenSecretEnv)
	}
}

// packaged reads a file of the function's package.
func packaged(getenv func(string) string, file string) ([]byte, error) {
	// AWS, "Working with Lambda environment variables". Elsewhere, the file is in the
	// folder of the program, or without one in the current folder.
	folder := getenv("LAMBDA_TASK_ROOT")
	if folder == "" {
		program, _ := os.Executable()
		folder = filepath.Dir(program)
	}
	return os.ReadFile(filepath.Join(folder, file))
}

// serviceCAs sets the CAs of the service, if the package has some.
func (r *reader) serviceCAs(f *Function) {
	text, err := r.file(ServiceCAFile)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var cas *clientcert.Truststore
	if err == nil {
		cas, err = clientcert.ReadTruststore(text)
	}
	if err == nil {
		f.ServiceCAs, err = x509.SystemCertPool()
	}
	if err != nil {
		r.problem(ServiceCAFile, err.Error())
		return
	}
	for _, c := range cas.Certificates() {
		f.ServiceCAs.AddCert(c)
	}
}

// trust returns a function's configuration of client certificates.
func (r *reader) trust(f Function) *MTLS {
	m := &MTLS{Policy: clientcert.Policy{Subjects: f.ClientCertSubjects, Revoked: f.Revoked}}
	for _, text := range f.ClientCertPins {
		pin, _ := clientcert.ParsePin(text)
		m.Policy.Pins = append(m.Policy.Pins, pin)
	}
	text, err := r.file(TruststoreFile)
	if err != nil {
		r.wrong(&r.to.Truststore, TruststoreFile+" can't be read in the function's package")
		return m
	}
	// A certificate that has expired since the deployment does not stop the function.
	// Verification rejects it, and the alarm on TrustDaysLeft is raised before.
	if m.Truststore, err = clientcert.ReadTruststore(text); err != nil {
		r.wrong(&r.to.Truststore, "%v", err)
	}
	return m
}
