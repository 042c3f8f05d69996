// Package acceptance deploys Payhook, a consumer and a simulated payment service under the
// names of one run, does the checks of the local run and those that only AWS can show,
// writes a report, and removes everything that it deployed. It does so in an account of
// AWS, and in an emulator.
//
// It changes and removes only stacks with the name and the tag of a run, and their
// resources. The private keys that sign webhooks stay in this process.
package acceptance

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	smithytime "github.com/aws/smithy-go/time"

	service "payhook.example/infra/acceptance/service/names"
	"payhook.example/infra/deployment"
	"payhook.example/infra/local"
	"payhook.example/infra/local/emulator"
	"payhook.example/infra/local/scenario"
	"payhook.example/shared/names"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// RunTag is the tag of everything that a run deploys. Its value is the id of the run.
const RunTag = "payhook:acceptance-run"

// prefix is the beginning of the names of stacks. CloudFormation begins the names of most
// resources with that of their stack.
const prefix = "PayhookAcceptance-"

// Target is where a run deploys.
type Target struct {
	Name        string // for people
	AWS         aws.Config
	Account     string
	Endpoint    string   // of the emulator; "" for AWS
	Environment []string // of the CDK CLI
	Lacks       map[scenario.Need]string
}

// client returns a client for URLs of the target.
func (t Target) client() *http.Client {
	if t.Endpoint != "" {
		return emulator.Direct
	}
	return &http.Client{Timeout: time.Minute}
}

// Run is one run.
type Run struct {
	ID     string
	Target Target
	CDK    *emulator.CDK     // for the target
	Values map[string]string // settings of Payhook, by their keys
	Keep   bool              // remove nothing at the end
	*emulator.Progress
}

func newRunID() string { return strings.ToLower(rand.Text()[:8]) }

// The stacks of a run, in the order in which they are deleted.
func (r *Run) stacks() (consumer, receiver, payhook, payments string) {
	own := prefix + r.ID
	return own + "-Consumer", own + "-Receiver", own, own + "-Service"
}

// Do deploys, checks and removes everything, and returns the report. It removes everything also
// after an error and after the end of ctx.
func (r *Run) Do(ctx context.Context) (report Report, err error) {
	report = newReport(r)
	defer func() {
		if !r.Keep {
			r.Say("removing everything of the run")
			removal, stop := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
			defer stop()
			if failed := Cleanup(removal, r.Target, r.ID, r.Progress); failed != nil {
				err = errors.Join(err, fmt.Errorf("not everything is removed; run payhook acceptance --cleanup: %w",
					failed))
			}
		}
		report.conclude(err)
	}()
	d, err := r.deploy(ctx)
	if err != nil {
		return report, err
	}
	return report, d.show(ctx, &report)
}

// removeTimeout is how long the removal of everything may take.
const removeTimeout = 45 * time.Minute

// deployed is the deployment of a run.
type deployed struct {
	scenario.Scenario
	run       *Run
	service   *remoteService
	limitsBus string // a bus of the run without a policy
}

// deploy deploys the stacks.
func (r *Run) deploy(ctx context.Context) (*deployed, error) {
	if err := os.MkdirAll(r.CDK.State, 0o700); err != nil {
		return nil, err
	}
	consumer, receiver, payhook, serviceStack := r.stacks()
	d := &deployed{run: r}
	values := maps.Clone(r.Values)
	values[settings.StackName.Key] = payhook
	if values[settings.TokenManagerID.Key] == "" {
		values[settings.TokenManagerID.Key] = settings.TokenManagerID.Example
	}
	inEmulator := map[string]string{}
	if r.Target.Endpoint != "" {
		inEmulator[service.LocalContext] = "true" // the consumer has the same key
		values[settings.LocalKey] = "true"
	}
	if scenario.UsesMTLS(values) {
		if err := d.newIdentity(values); err != nil {
			return nil, err
		}
	}
	if err := r.Step("deploying the simulated payment service", func() error {
		own := map[string]string{service.StackNameContext: serviceStack}
		maps.Copy(own, inEmulator)
		outputs, err := r.deployApp(ctx, filepath.Join("infra", "acceptance", "service"), "service.out", own)
		if err != nil {
			return err
		}
		d.limitsBus = outputs[serviceStack][service.LimitsBusOutput]
		d.service, err = newRemoteService(r.Target, outputs[serviceStack], values, d.Identity)
		return errors.Join(err, d.service.Rotate(ctx))
	}); err != nil {
		return nil, err
	}
	values[settings.BaseURL.Key], values[settings.AuthURL.Key] = d.service.url, d.service.url
	d.Scenario = scenario.Scenario{
		Deployment: &deployment.Deployment{AWS: r.Target.AWS, Endpoint: r.Target.Endpoint, Region: r.Target.AWS.Region,
			Stack: payhook, Settings: values, PaymentService: d.service.url},
		Service: d.service, Identity: d.Identity, Certificates: d.Certificates, Client: r.Target.client(),
		Lacks: r.Target.Lacks, Progress: r.Progress,
	}
	if err := r.Step("deploying Payhook", func() error {
		outputs, err := r.deployApp(ctx, "", "payhook.out", values)
		if err != nil {
			return err
		}
		d.WebhookURL = outputs[payhook][names.WebhookURLOutput]
		return d.SetOutputs(outputs[payhook])
	}); err != nil {
		return nil, err
	}
	if err := r.Step("deploying the consumer", func() error {
		bus := strings.ToLower(receiver)
		own := map[string]string{"eventBusName": d.Bus, "stackName": consumer,
			"rules": strings.Join(scenario.Rules(), ","),
			// The bus for another account is in the same account.
			"sourceAccount": r.Target.Account, "receiverStackName": receiver, "receiverBus": bus,
			"targetBus": fmt.Sprintf("arn:%s:events:%s:%s:event-bus/%s", partition(d.Region), d.Region,
				r.Target.Account, bus)}
		maps.Copy(own, inEmulator)
		outputs, err := r.deployApp(ctx, filepath.Join("events", "consumer"), "consumer.out", own, "--parameters",
			consumer+":ClaimBucket="+d.ClaimBucket)
		if err != nil {
			return err
		}
		return d.SetConsumer(outputs[consumer], outputs[receiver])
	}); err != nil {
		return nil, err
	}
	if r.Target.Endpoint != "" {
		d.WebhookURL = emulator.FunctionURL(r.Target.Endpoint, d.WebhookURL)
	} else if d.Setting(settings.DomainName) != "" {
		if err := r.Step("waiting for "+d.WebhookURL, func() error { return d.awaitEndpoint(ctx) }); err != nil {
			return nil, err
		}
	}
	return d, d.storeCredentials(ctx)
}

// deployApp deploys all stacks of the CDK app in a folder of the project, with the tag of the
// run, and returns their outputs. CloudFormation gives the tags of a stack to its resources.
func (r *Run) deployApp(ctx context.Context, folder, out string, values map[string]string,
	flags ...string) (map[string]map[string]string, error) {
	assembly, err := r.CDK.Synth(ctx, filepath.Join(r.CDK.Top, folder), out, values)
	if err != nil {
		return nil, err
	}
	return r.CDK.Deploy(ctx, assembly, append(flags, "--tags", RunTag+"="+r.ID), "--all")
}

// partition returns the partition of a region, as it is in ARNs (AWS, "Amazon Resource Names":
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference-arns.html).
func partition(region string) string {
	switch {
	case strings.HasPrefix(region, "cn-"):
		return "aws-cn"
	case strings.HasPrefix(region, "us-gov-"):
		return "aws-us-gov"
	}
	return "aws"
}

// newIdentity creates the client certificates of the service, and sets the settings that name
// them. The private keys stay in this process.
func (d *deployed) newIdentity(values map[string]string) error {
	d.Identity = paymenttest.NewIdentity()
	d.Certificates = scenario.NewCertificates(d.Identity)
	maps.Copy(values, d.Certificates.Settings(d.Identity))
	values[settings.Truststore.Key] = filepath.Join(d.run.CDK.State, "truststore.pem")
	return os.WriteFile(values[settings.Truststore.Key], d.Identity.CA.PEM(), 0o600)
}

// awaitEndpoint waits until the function answers at the domain name: DNS and API Gateway need
// minutes.
func (d *deployed) awaitEndpoint(ctx context.Context) error {
	for deadline := time.Now().Add(15 * time.Minute); ; {
		answer, err := d.send(ctx, paymenttest.Webhook{}) // without a body, it has no effect
		if err == nil && reachedFunction(answer) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("it does not answer in time: %d %s %w", answer.Status, answer.Body, err)
		}
		if err := smithytime.SleepWithContext(ctx, 5*time.Second); err != nil {
			return err
		}
	}
}

// storeCredentials stores the client credentials, as a person does after the first deployment.
func (d *deployed) storeCredentials(ctx context.Context) error {
	value, err := json.Marshal(map[string]string{"client_id": d.service.state.ClientID,
		"client_secret": d.service.state.ClientSecret})
	if err != nil {
		return err
	}
	_, err = secretsmanager.NewFromConfig(d.AWS).PutSecretValue(ctx, &secretsmanager.PutSecretValueInput{
		SecretId: &d.CredentialsSecret, SecretString: aws.String(string(value)),
	})
	return err
}

// newRemoteService returns the service of the outputs of its stack.
func newRemoteService(t Target, outputs, values map[string]string,
	identity *paymenttest.Identity) (*remoteService, error) {
	scheme, format, err := local.Scheme(values)
	if err != nil {
		return nil, err
	}
	url := outputs[service.ServiceURLOutput]
	if t.Endpoint != "" {
		url = emulator.FunctionURL(t.Endpoint, url)
	}
	return &remoteService{
		url: strings.TrimRight(url, "/"), bucket: outputs[service.StateBucketOutput], objects: objects(t.AWS),
		sender: paymenttest.Sender{Scheme: scheme, Format: format, Identity: identity,
			Method: scenario.Setting(values, settings.HTTPMethod), Client: t.client()},
		state: paymenttest.NewState(paymenttest.Options{
			TokenManagerID: scenario.Setting(values, settings.TokenManagerID),
			FormEncoded:    scenario.Setting(values, settings.CredentialEncoding) == "form",
			KeysBearer:     scenario.Setting(values, settings.KeysAuth) == "bearer",
		}),
	}, nil
}
