// Package acceptance deploys Payhook, a consumer and a simulated payment service under the
// names of one run, does the checks of the local run and those that only AWS can show,
// writes a report, and removes everything that it deployed. It does so in an account of
// AWS, and in an emulator.
//
// It changes and removes only stacks with the name and the tag of a run, and their
// resources. The private keys that sign webhooks stay in this process.
package acceptance

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"payhook.example/infra/deployment"
	"payhook.example/infra/local/emulator"
	"payhook.example/infra/local/scenario"
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
	Partition   string   // of ARNs, such as aws
	Endpoint    string   // of the emulator; "" for AWS
	Environment []string // of the CDK CLI
}

// Run is one run, with what it deployed.
type Run struct {
	ID     string
	Target Target
	CDK    *emulator.CDK     // for the target
	Values map[string]string // settings of Payhook that the user chose, by their keys
	Keep   bool              // remove nothing at the end

	scenario.Scenario
	service   *remoteService
	limitsBus string // a bus of the run without a policy
}

// newRun returns a run with new names.
func newRun(top string, to Target, values map[string]string, progress *emulator.Progress) *Run {
	r := &Run{ID: strings.ToLower(rand.Text()[:8]), Target: to, Values: values}
	r.Progress = progress
	r.CDK = &emulator.CDK{Top: top, State: filepath.Join(top, ".local", "acceptance", r.ID),
		Environment: to.Environment}
	return r
}

// stacks returns the names of the stacks of a run.
func stacks(id string) (consumer, receiver, payhook, payments string) {
	own := prefix + id
	return own + "-Consumer", own + "-Receiver", own, own + "-Service"
}

// Do deploys, checks and removes everything, and returns the report. It removes everything also
// after an error and after the end of ctx.
func (r *Run) Do(ctx context.Context) (report Report, err error) {
	report = Report{Run: r.ID, Target: r.Target.Name, Started: time.Now().UTC(), Settings: r.Values}
	if info, ok := debug.ReadBuildInfo(); ok {
		report.Version = info.Main.Version
	}
	defer func() {
		if !r.Keep {
			r.Progress.Say("removing everything of the run")
			removal, stop := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
			defer stop()
			if failed := Cleanup(removal, r.Target, r.ID, r.Progress); failed != nil {
				err = errors.Join(err, fmt.Errorf("not everything is removed; run payhook acceptance --cleanup: %w",
					failed))
			}
		}
		report.conclude(err)
	}()
	if err := r.deploy(ctx); err != nil {
		return report, err
	}
	return report, r.show(ctx, &report)
}

// removeTimeout is how long the removal of everything may take.
const removeTimeout = 45 * time.Minute

// deploy deploys the stacks.
func (r *Run) deploy(ctx context.Context) error {
	if err := os.MkdirAll(r.CDK.State, 0o700); err != nil {
		return err
	}
	consumer, receiver, payhook, payments := stacks(r.ID)
	values, local := maps.Clone(r.Values), map[string]string{}
	values[settings.StackName.Key] = payhook
	values[settings.TokenManagerID.Key] = cmp.Or(values[settings.TokenManagerID.Key], settings.TokenManagerID.Example)
	if r.Target.Endpoint != "" {
		// Redrive must not wait long.
		values[settings.WebhookTimeout.Key], values[settings.RedriveTimeout.Key] = "4s", "5s"
		values[settings.RedriveGrace.Key], values[settings.LocalKey] = "1s", "true"
		local["local"] = "true"
	}
	r.Deployment = &deployment.Deployment{AWS: r.Target.AWS, Endpoint: r.Target.Endpoint,
		Region: r.Target.AWS.Region, Stack: payhook, Settings: values}
	r.Client = &http.Client{Timeout: time.Minute}
	if r.Endpoint != "" {
		r.Client = deployment.Direct
	}
	if scenario.UsesMTLS(values) {
		// The private keys stay in this process.
		r.Identity = paymenttest.NewIdentity()
		r.Certificates = scenario.NewCertificates(r.Identity)
		maps.Copy(values, r.Certificates.Settings(r.Identity))
		values[settings.Truststore.Key] = filepath.Join(r.CDK.State, "truststore.pem")
		if err := os.WriteFile(values[settings.Truststore.Key], r.Identity.CA.PEM(), 0o600); err != nil {
			return err
		}
	}
	local["stackName"] = payments
	outputs, err := r.deployApp(ctx, "the simulated payment service", "infra/acceptance/service", local)
	if err != nil {
		return err
	}
	if err := r.startService(ctx, outputs[payments]); err != nil {
		return err
	}
	values[settings.BaseURL.Key], values[settings.AuthURL.Key] = r.PaymentService, r.PaymentService
	if outputs, err = r.deployApp(ctx, "Payhook", ".", values); err != nil {
		return err
	}
	if err := r.SetOutputs(outputs[payhook], deployment.DefaultID); err != nil {
		return err
	}
	bus := strings.ToLower(receiver)
	maps.Copy(local, map[string]string{"eventBusName": r.Bus, "stackName": consumer,
		"rules": strings.Join(scenario.Rules(), ","),
		// The bus for another account is in the same account.
		"sourceAccount": r.Target.Account, "receiverStackName": receiver, "receiverBus": bus,
		"targetBus": fmt.Sprintf("arn:%s:events:%s:%s:event-bus/%s", r.Target.Partition, r.Region, r.Target.Account,
			bus)})
	if outputs, err = r.deployApp(ctx, "the consumer", "events/consumer", local, "--parameters",
		consumer+":ClaimBucket="+r.ClaimBucket); err != nil {
		return err
	}
	if err := r.SetConsumer(outputs[consumer], outputs[receiver]); err != nil {
		return err
	}
	if r.Endpoint != "" {
		r.WebhookURL = deployment.FunctionURL(r.Endpoint, r.WebhookURL)
	}
	// DNS and API Gateway need minutes for a domain name.
	if err := r.Progress.Step("waiting for "+r.WebhookURL, func() error {
		return scenario.Poll(ctx, 15*time.Minute, 5*time.Second, func() (bool, error) {
			answer, err := r.send(ctx, paymenttest.Webhook{}) // without a body, it has no effect
			return err == nil && reachedFunction(answer), ctx.Err()
		})
	}); err != nil {
		return err
	}
	// A person does this after the first deployment.
	value := fmt.Sprintf(`{"client_id":%q,"client_secret":%q}`, r.service.state.ClientID, r.service.state.ClientSecret)
	_, err = secretsmanager.NewFromConfig(r.AWS).PutSecretValue(ctx,
		&secretsmanager.PutSecretValueInput{SecretId: &r.CredentialsSecret, SecretString: &value})
	return err
}

// deployApp deploys all stacks of the CDK app in a folder of the project, with the tag of the
// run, and returns their outputs. CloudFormation gives the tags of a stack to its resources.
func (r *Run) deployApp(ctx context.Context, what, folder string, values map[string]string,
	flags ...string) (outputs map[string]map[string]string, err error) {
	return outputs, r.Progress.Step("deploying "+what, func() error {
		assembly, err := r.CDK.Synth(ctx, filepath.Join(r.CDK.Top, folder), strings.ReplaceAll(what, " ", "-")+".out",
			values)
		if err == nil {
			err = deletable(assembly)
		}
		if err == nil {
			outputs, err = r.CDK.Deploy(ctx, assembly, append(flags, "--tags", RunTag+"="+r.ID), "--all")
		}
		return err
	})
}
