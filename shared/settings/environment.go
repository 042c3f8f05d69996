package settings

import (
	"fmt"
	"io/fs"
	"time"
)

// Resources are the names of the resources of a deployment, which can be tokens of the CDK.
type Resources struct {
	LedgerTable, KeysTable     string
	ClaimBucket, ParkingBucket string
	EvidenceBucket             string // "" without Evidence
	EventBus                   string
	Token                      string // a secret, its ARN, or a parameter, as TokenStore says
	Credentials                string // a secret, or its ARN
	API                        string // the id of the HTTP API; only with client certificates
}

// Environment returns the environment of the webhook, redrive or token function of a deployment with those resources,
// by the names of the variables. CaptureRejected begins now.
func (d Deployment) Environment(function string, r Resources) map[string]string {
	env := map[string]string{StackEnv: d.StackName}
	for _, s := range ReadBy(function) {
		env[s.Env()] = d.Text(s)
	}
	if !d.Local {
		// Otherwise Go reads the bundle of CA certificates, and then every file of two folders that hold the same
		// certificates again (https://go.dev/issue/79018), in each start. On a user's machine the bundle may be
		// incomplete, and on macOS the variable replaces the certificates of the system.
		env["SSL_CERT_DIR"] = "/nonexistent"
	}
	store := TokenSecretEnv
	if d.TokenStore == InParameter {
		store = TokenParameterEnv
	}
	if function == "token" {
		env[store], env[CredentialsSecretEnv] = r.Token, r.Credentials
		return env
	}
	env[LedgerTableEnv], env[EventBusNameEnv] = r.LedgerTable, r.EventBus
	env[ClaimBucketEnv], env[ParkingBucketEnv] = r.ClaimBucket, r.ParkingBucket
	if d.Local {
		env[RedriveGraceEnv] = LocalRedriveGrace.String()
	}
	if function == "webhook" && d.UsesMTLS() {
		env[APIIDEnv] = r.API
	}
	if function == "webhook" && d.CaptureRejected > 0 {
		// The time is absolute, so that the capture ends by itself: a new process of the
		// function does not extend it. A new deployment does.
		env[CaptureUntilEnv] = time.Now().Add(d.CaptureRejected).UTC().Format(time.RFC3339)
	}
	if function != "webhook" && !d.ReplaysRejected() { // it does not find webhooks authentic and accept them
		return env
	}
	if d.UsesSignature() {
		env[KeysTableEnv] = r.KeysTable
	}
	if d.KeysAuth == BearerToken {
		env[store] = r.Token
	}
	if r.EvidenceBucket != "" {
		env[EvidenceBucketEnv] = r.EvidenceBucket
	}
	return env
}

// ReplaysRejected reports whether the redrive function can replay rejected webhooks. The client certificate of a
// webhook is not captured.
func (d Deployment) ReplaysRejected() bool { return d.CaptureRejected > 0 && !d.UsesMTLS() }

// Function returns the configuration of a function with that environment and with the certificates of the deployment,
// for a function that runs without a package.
func (d Deployment) Function(function string, r Resources) (Function, error) {
	env := d.Environment(function, r)
	from := fromEnvironment(func(name string) string { return env[name] })
	from.file = func(name string) ([]byte, error) {
		text := map[string][]byte{TruststoreFile: d.TruststorePEM, ServiceCAFile: d.ServiceCAPEM}[name]
		if text == nil {
			return nil, fs.ErrNotExist
		}
		return text, nil
	}
	f, err := from.parse(function)
	if err != nil {
		err = fmt.Errorf("the %s function: %w", function, err)
	}
	return f, err
}

// RedriveTimeout returns the timeout of the redrive function.
func (d Deployment) RedriveTimeout() time.Duration {
	if d.Local {
		return LocalRedriveTimeout
	}
	return RedriveTimeout
}
