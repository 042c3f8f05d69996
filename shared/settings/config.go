package settings

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
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

// Config is the configuration of a function: the settings and the resources that it reads. Others are zero.
// LedgerTable, LargeEventBucket, ParkingBucket and EventBusName are those of the stack.
type Config struct {
	Settings

	// These are what the settings say.
	KeyEndpoint  *url.URL // BaseURL
	TokenService *url.URL // AuthURL
	Scheme       signature.Scheme
	Networks     []netip.Prefix         // AllowedNetworks; none: every sender
	MTLS         *MTLS                  // nil: no client certificate is required
	ServiceCAs   *x509.CertPool         // those of the system and of ServiceCA; nil: those of the system
	Revoked      clientcert.Revocations // RevokedKeys
	Verification map[string]string      // the texts of what decides whether a signature verifies, by their keys

	KeysTable          string
	TokenSecret        string    // name or ARN; "" if TokenParameter is set
	TokenParameter     string    // name; "" if TokenSecret is set
	TokenKey           string    // ARN of the key of TokenParameter; "" for that of AWS
	CredentialsSecret  string    // name or ARN
	EvidenceBucket     string    // takes a proof of each accepted delivery; "" for none
	StoreRejectedUntil time.Time // until when rejected webhooks are stored; zero: none are
	MaxEntryBytes      int
	RedriveGrace       time.Duration
}

// MTLS is the configuration of client certificates.
type MTLS struct {
	DomainName string // only for the webhook function
	APIID      string // only for the webhook function
	Truststore clientcert.Truststore
	Policy     clientcert.Policy
}

// ParseConfig parses the environment of the webhook, redrive or token function, and the files of its package. A missing
// variable means the default of its setting, so a function starts with the environment of a template that does not
// define the setting yet. Variables without a default are required: the names of resources, including the bus, and the
// required settings. With an error, it returns what the valid variables say.
func ParseConfig(function string, getenv func(string) string) (Config, error) {
	return parseConfig(function, getenv, func(name string) ([]byte, error) { return packaged(getenv, name) })
}

func parseConfig(function string, getenv func(string) string, file func(string) ([]byte, error)) (Config, error) {
	r := &reader{getenv: getenv, file: file, text: func(s *Setting) text {
		return text{text: cmp.Or(getenv(s.Env()), s.Default), name: s.Env()}
	}}
	f := r.config(function)
	r.serviceCAs(&f)
	f.LedgerTable, f.EventBusName = r.getenv(LedgerTableEnv), r.getenv(EventBusNameEnv)
	f.KeysTable, f.EvidenceBucket = r.getenv(KeysTableEnv), r.getenv(EvidenceBucketEnv)
	f.LargeEventBucket, f.ParkingBucket = r.getenv(LargeEventBucketEnv), r.getenv(ParkingBucketEnv)
	f.TokenSecret, f.TokenParameter, f.TokenKey = r.getenv(TokenSecretEnv), r.getenv(TokenParameterEnv),
		r.getenv(TokenKeyEnv)
	f.CredentialsSecret = r.getenv(CredentialsSecretEnv)
	f.RedriveGrace = RedriveGrace
	if r.getenv(LocalEnv) != "" {
		f.RedriveGrace = LocalRedriveGrace
	}
	// The limit of the total size of a request of PutEvents, which must be less, depends on
	// the Region (AWS, "PutEvents" in the EventBridge API reference, and in the reference
	// for China). Lambda sets AWS_REGION (AWS, "Working with Lambda environment variables").
	f.MaxEntryBytes = 1 << 20
	if strings.HasPrefix(r.getenv("AWS_REGION"), "cn-") {
		f.MaxEntryBytes = 256 << 10
	}
	if text := r.getenv(StoreRejectedUntilEnv); text != "" {
		until, err := time.Parse(time.RFC3339, text)
		if f.StoreRejectedUntil = until; err != nil {
			r.problem(StoreRejectedUntilEnv, err.Error())
		}
	}
	if function != "token" && f.UsesMTLS() {
		f.MTLS = r.trust(f)
	}
	for _, variable := range f.required(function) {
		if r.getenv(variable) == "" {
			r.problem(variable, "is required")
		}
	}
	return f, r.err()
}

// required returns the variables that the function cannot do without.
func (f Config) required(name string) []string {
	all := []string{LedgerTableEnv, EventBusNameEnv, LargeEventBucketEnv, ParkingBucketEnv}
	// The redrive function finds webhooks authentic only with storeRejected, and then has a table of keys.
	fetches := f.KeyEndpointAuth == BearerToken && (name == "webhook" || f.KeysTable != "")
	if name == "token" {
		all, fetches = []string{CredentialsSecretEnv}, true
	}
	if fetches && f.TokenParameter == "" {
		all = append(all, TokenSecretEnv)
	}
	if name == "webhook" && f.UsesSignature() {
		all = append(all, KeysTableEnv)
	}
	if name == "webhook" && f.UsesMTLS() {
		all = append(all, ByKey("domainName").Env(), APIIDEnv)
	}
	return all
}

// ParseVerification parses those settings that decide whether the signature of a webhook verifies.
// texts are the texts by their keys; others are ignored.
func ParseVerification(texts map[string]string) (Config, error) {
	r := &reader{text: func(s *Setting) text { return text{text: TextOf(texts, s.Key), name: s.Key} }}
	f := r.config("verify")
	r.locations()
	return f, r.err()
}

// config returns the settings that a program reads, and what they say.
func (r *reader) config(program string) Config {
	r.read(ReadBy(program))
	f := Config{Settings: r.to, Verification: map[string]string{}}
	for _, s := range ReadBy("verify") {
		f.Verification[s.Key] = r.text(s).text
	}
	// The problems of texts are reported already.
	f.KeyEndpoint, _ = parseURL(f.BaseURL)
	f.TokenService, _ = parseURL(f.AuthURL)
	f.Scheme = signature.Scheme{SignatureHeader: f.SignatureHeader,
		Timestamp: signature.Location(f.TimestampLocation), KeyID: signature.Location(f.KeyIDLocation)}
	for _, text := range f.AllowedNetworks {
		network, _ := netip.ParsePrefix(text)
		f.Networks = append(f.Networks, network)
	}
	for _, text := range f.RevokedKeys {
		name, _ := clientcert.ParseRevocation(text)
		f.Revoked = append(f.Revoked, name)
	}
	return f
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
func (r *reader) serviceCAs(f *Config) {
	text, err := r.file(ServiceCAFile)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var cas clientcert.Truststore
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
	for _, c := range cas {
		f.ServiceCAs.AddCert(c)
	}
}

// trust returns a function's configuration of client certificates.
func (r *reader) trust(f Config) *MTLS {
	m := &MTLS{DomainName: f.DomainName, APIID: r.getenv(APIIDEnv),
		Policy: clientcert.Policy{Subjects: f.ClientCertSubjects, Revoked: f.Revoked}}
	for _, text := range f.ClientCertPins {
		pin, _ := clientcert.ParsePin(text)
		m.Policy.Pins = append(m.Policy.Pins, pin)
	}
	text, err := r.file(TruststoreFile)
	if err != nil {
		r.wrong("truststore", TruststoreFile+" can't be read in the function's package")
		return m
	}
	// A certificate that has expired since the deployment does not stop the function.
	// Verification rejects it, and the alarm on TrustDaysLeft is raised before.
	if m.Truststore, err = clientcert.ReadTruststore(text); err != nil {
		r.wrong("truststore", "%v", err)
	}
	return m
}

// Resources are the names or ARNs of the resources of a stack by their variables. They can be tokens of the CDK.
// What the settings do not use can be missing, and TokenStore says which variable the access token has.
type Resources map[string]string

// Environment returns the environment of the webhook, redrive or token function of a stack with those resources, by
// the names of the variables. StoreRejected begins now.
func (s Settings) Environment(function string, r Resources) map[string]string {
	env := map[string]string{StackEnv: s.stackName}
	for _, setting := range ReadBy(function) {
		env[setting.Env()] = s.Text(setting)
	}
	set := func(variables ...string) {
		for _, name := range variables {
			if r[name] != "" {
				env[name] = r[name]
			}
		}
	}
	if fips := ByKey("fips"); s.Text(fips) == "true" { // package shared/aws/client reads it
		env[fips.Env()] = "true"
	}
	if s.local {
		env[LocalEnv] = "true"
	} else {
		// Otherwise Go reads the bundle of CA certificates, and then every file of two folders that hold the same
		// certificates again (https://go.dev/issue/79018), in each start. On a user's machine the bundle may be
		// incomplete, and on macOS the variable replaces the certificates of the system.
		env["SSL_CERT_DIR"] = "/nonexistent"
	}
	if function == "token" {
		set(TokenSecretEnv, TokenParameterEnv, CredentialsSecretEnv)
		return env
	}
	set(LedgerTableEnv, EventBusNameEnv, LargeEventBucketEnv, ParkingBucketEnv)
	if function == "webhook" {
		set(APIIDEnv)
		if s.StoreRejected > 0 {
			// The time is absolute, so that it ends by itself: a new process of the
			// function does not extend it. A new deployment does.
			env[StoreRejectedUntilEnv] = time.Now().Add(s.StoreRejected).UTC().Format(time.RFC3339)
		}
	} else if !s.ReplaysRejected() { // it does not find webhooks authentic and accept them
		return env
	}
	set(EvidenceBucketEnv)
	if s.UsesSignature() {
		set(KeysTableEnv)
	}
	if s.KeyEndpointAuth == BearerToken {
		set(TokenSecretEnv, TokenParameterEnv)
	}
	return env
}

// ReplaysRejected reports whether the redrive function can replay rejected webhooks. The client certificate of a
// webhook is not stored.
func (s Settings) ReplaysRejected() bool { return s.StoreRejected > 0 && !s.UsesMTLS() }

// Config returns the configuration of a function with that environment and with the certificates of the stack, for a
// function that runs without a package.
func (s Settings) Config(function string, r Resources) (Config, error) {
	env := s.Environment(function, r)
	f, err := parseConfig(function, func(name string) string { return env[name] }, func(name string) ([]byte, error) {
		if text, ok := s.files[name]; ok {
			return text, nil
		}
		return nil, fs.ErrNotExist
	})
	if err != nil {
		err = fmt.Errorf("the %s function: %w", function, err)
	}
	return f, err
}

// RedriveTimeout returns the timeout of the redrive function.
func (s Settings) RedriveTimeout() time.Duration {
	if s.local {
		return LocalRedriveTimeout
	}
	return RedriveTimeout
}
