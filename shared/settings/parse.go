package settings

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/names"
)

// ParseWebhook parses the environment of the webhook function.
func ParseWebhook(getenv func(string) string) (Webhook, error) {
	r := fromEnvironment(getenv)
	d := r.read(WebhookSettings())
	w := d.Webhook
	w.Publishing = r.publishing(w.Publishing)
	w.KeysTable, w.Tracing = r.resource(names.KeysTableEnv), d.Tracing
	if w.UsesMTLS() {
		w.MTLS = r.trust(&d)
		if w.MTLS.DomainName = d.Endpoint.DomainName; w.MTLS.DomainName == "" {
			r.wrong(DomainName, "is required")
		}
		w.MTLS.APIID = r.resource(names.APIIDEnv)
	}
	if w.KeysBearer {
		w.TokenSecret = r.resource(names.TokenSecretEnv)
	}
	if text := getenv(names.CaptureUntilEnv); text != "" {
		var err error
		if w.CaptureUntil, err = time.Parse(time.RFC3339, text); err != nil {
			r.problem(names.CaptureUntilEnv, "must be a time of RFC 3339")
		}
	}
	w.EvidenceBucket = getenv(names.EvidenceBucketEnv)
	w.Proof = map[string]string{}
	for _, s := range ProofSettings() {
		w.Proof[s.Key] = r.text(s)
	}
	return w, r.err()
}

// ParseRedrive parses the environment of the redrive function.
func ParseRedrive(getenv func(string) string) (Redrive, error) {
	r := fromEnvironment(getenv)
	d := r.read(RedriveSettings())
	s := Redrive{
		Authentication: d.Webhook.Authentication,
		KeyExponents:   d.Webhook.KeyExponents,
		Attempts:       d.RedriveAttempts,
		Publishing:     r.publishing(d.Webhook.Publishing),
	}
	if d.Webhook.UsesMTLS() {
		s.Trust = r.trust(&d)
		s.KeysTable = r.resource(names.KeysTableEnv)
	}
	return s, r.err()
}

// ParseToken parses the environment of the token function.
func ParseToken(getenv func(string) string) (Token, error) {
	r := fromEnvironment(getenv)
	t := r.read(TokenSettings()).Token
	t.TokenSecret = r.resource(names.TokenSecretEnv)
	t.CredentialsSecret = r.resource(names.CredentialsSecretEnv)
	return t, r.err()
}

// ParseProof parses those settings of the CDK context that decide whether the
// signature of a webhook verifies. texts are the texts by their keys; others are ignored.
func ParseProof(texts map[string]string) (Webhook, error) {
	r := fromTexts(texts)
	w := r.read(ProofSettings()).Webhook
	r.carriersDiffer()
	return w, r.err()
}

// Given are the settings of a deployment.
type Given struct {
	// Deployment is the name of the deployment, which differs from that of every other
	// deployment in the account and region.
	Deployment string
	// Local reports whether the deployment is for an emulator on this machine.
	Local bool
	// Account and Region are where the stack is deployed; "" or a token of the CDK if unknown.
	Account, Region string
	BusARN          string            // of an existing bus; "" for none
	Texts           map[string]string // the texts of the settings that are set, by their keys
	// Unchecked are the keys of texts whose form is not checked: names and ARNs of existing
	// resources, which can be unknown until the deployment.
	Unchecked map[string]bool
	// Names are the names of settings in problems, by their keys, if they differ from these.
	Names map[string]string
}

// place returns an ARN of the account and Region of the stack.
func (g Given) place() string { return "arn:::" + g.Region + ":" + g.Account + ":" }

// ParseDeployment parses the settings of a deployment. Its error lists every missing,
// invalid and unknown setting and every rejected combination, one in a line.
func ParseDeployment(given Given) (Deployment, error) {
	texts := map[string]string{EventBusName.Key: DefaultBusName(given.Deployment)}
	maps.Copy(texts, given.Texts)
	r := fromTexts(texts)
	r.given = given
	r.name = func(s *Setting) string { return cmp.Or(given.Names[s.Key], s.Key) }
	known := declared
	if !given.Local {
		known = All()
		for _, s := range LocalSettings() {
			delete(texts, s.Key)
		}
	}
	d := r.read(declared)
	d.StackName, d.Local = given.Deployment, given.Local
	d.Endpoint.ThrottleBurst = min(2*d.Endpoint.ThrottleRate, maxThrottleBurst)
	d.values = map[string]string{}
	for _, s := range declared {
		d.values[s.Key] = r.text(s)
	}
	r.endpoint(&d)
	r.clientCertificates(&d, time.Now())
	r.contradictions(&d)
	r.place(&d)
	r.environmentSize()
	for _, key := range slices.Sorted(maps.Keys(given.Texts)) {
		if !slices.ContainsFunc(known, func(s *Setting) bool { return s.Key == key }) {
			r.problem(key, Unknown(key, known))
		}
	}
	return d, r.err()
}

// maxThrottleBurst is the burst of an account (AWS, "Amazon API Gateway quotas").
const maxThrottleBurst = 5000

// DefaultBusName returns the name of the bus of a deployment without the setting
// eventBusName: that of the deployment, with the name of the stack in lower case.
func DefaultBusName(deployment string) string {
	stack, id, ok := strings.Cut(deployment, "_")
	name := strings.ToLower(stack)
	if ok {
		name += "_" + id
	}
	return name[:min(len(name), maxBusName)]
}

// reader reads settings from one source and collects their problems.
type reader struct {
	name     func(*Setting) string
	text     func(*Setting) string
	getenv   func(string) string // of a function
	given    Given               // of a deployment
	problems []error
	invalid  []*Setting // the settings with a problem
}

// fromEnvironment returns a reader of a function's environment. A missing variable
// means the default of its setting, so a function starts with the environment of a
// template that does not define the setting yet. Variables without a default are
// required: the names of resources, including the bus, and the required settings.
func fromEnvironment(getenv func(string) string) *reader {
	return &reader{
		name:   (*Setting).Env,
		text:   func(s *Setting) string { return cmp.Or(getenv(s.Env()), s.Default) },
		getenv: getenv,
	}
}

func fromTexts(texts map[string]string) *reader {
	return &reader{
		name: func(s *Setting) string { return s.Key },
		text: func(s *Setting) string {
			if text, ok := texts[s.Key]; ok {
				return text
			}
			return s.Default
		},
	}
}

// read parses settings.
func (r *reader) read(list []*Setting) (d Deployment) {
	for _, s := range list {
		text := r.text(s)
		switch {
		case text == "" && (s.Required || s == EventBusName):
			r.wrong(s, "is required")
		case text == "" && s.Default == "", text == s.Zero && s.Zero != "":
			// It is the zero value.
		default:
			err := s.parse(&d, text)
			if err != nil && s.Zero != "" {
				err = fmt.Errorf("%w, or %s", err, s.Zero)
			}
			if err != nil && !r.given.Unchecked[s.Key] {
				r.wrong(s, err.Error())
			}
		}
	}
	if d.window.Tolerance > 0 {
		d.Webhook.Window = &d.window
	}
	return d
}

func (r *reader) err() error { return errors.Join(r.problems...) }

// valid reports whether none of the settings has a problem.
func (r *reader) valid(conf ...*Setting) bool {
	return !slices.ContainsFunc(conf, func(s *Setting) bool { return slices.Contains(r.invalid, s) })
}

func (r *reader) wrong(s *Setting, problem string) {
	r.invalid = append(r.invalid, s)
	r.problem(r.name(s), problem+" (example: "+s.Example+")")
}

func (r *reader) problem(name, problem string) {
	r.problems = append(r.problems, fmt.Errorf("%s: %s", name, problem))
}

// resource returns a variable that names a resource of a function.
func (r *reader) resource(env string) string {
	v := r.getenv(env)
	if v == "" {
		r.problem(env, "is required")
	}
	return v
}

// publishing returns p with the resources of a function.
func (r *reader) publishing(p Publishing) Publishing {
	p.LedgerTable = r.resource(names.LedgerTableEnv)
	p.ClaimBucket, p.ParkingBucket = r.resource(names.ClaimBucketEnv), r.resource(names.ParkingBucketEnv)
	// The limit of the total size of a request of PutEvents, which must be less, depends on
	// the Region (AWS, "PutEvents" in the EventBridge API reference, and in the reference
	// for China). Lambda sets AWS_REGION (AWS, "Working with Lambda environment variables").
	p.MaxEntryBytes = 1 << 20
	if strings.HasPrefix(r.getenv("AWS_REGION"), "cn-") {
		p.MaxEntryBytes = 256 << 10
	}
	return p
}

// trust returns a function's configuration of client certificates.
func (r *reader) trust(d *Deployment) *MTLS {
	m := &MTLS{Policy: d.policy}
	// AWS, "Working with Lambda environment variables". Elsewhere, the truststore is in the
	// folder of the program, or without one in the current folder.
	folder := r.getenv("LAMBDA_TASK_ROOT")
	if folder == "" {
		program, _ := os.Executable()
		folder = filepath.Dir(program)
	}
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
