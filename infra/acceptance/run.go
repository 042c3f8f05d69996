// Package acceptance does the checks of the end-to-end tests in an account of AWS: it deploys Payhook, a
// consumer and a simulated payment service under the names of one run, does the checks, reports
// their results, and deletes every stack with the tag of the run.
//
// The private keys that sign webhooks stay in this process.
package acceptance

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"payhook.example/infra/build"
	"payhook.example/infra/checks"
	"payhook.example/infra/deployment"
	"payhook.example/infra/local"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// RunTag is the tag of everything that a run deploys. Its value is the id of the run.
const RunTag = "payhook:acceptance-run"

// prefix is the beginning of the names of stacks. CloudFormation begins the names of most
// resources with that of their stack.
const prefix = "PayhookAcceptance-"

// run is one run, with what it deployed. Its Settings are those of Payhook.
type run struct {
	id        string
	account   string
	partition string     // of ARNs, such as aws
	cdk       *local.CDK // for the account and region
	progress  *local.Progress
	service   string            // the function of the simulated payment service
	state     paymenttest.State // with which it answers
	checks.Subject
}

// newRun returns a run with new names, and settings that the user chose, at a place. Its checks call the commands of a
// program.
func newRun(ctx context.Context, top, program string, place deployment.Deployment, values map[string]string,
	progress *local.Progress) (*run, error) {
	cfg, err := deployment.Config(ctx, place)
	if err != nil {
		return nil, err
	}
	caller, err := sts.NewFromConfig(cfg).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return nil, fmt.Errorf("the account is not known: %w", err)
	}
	id, arn := strings.ToLower(rand.Text()[:8]), strings.Split(aws.ToString(caller.Arn), ":")
	place.AWS, place.Region, place.Endpoint = cfg, cfg.Region, aws.ToString(cfg.BaseEndpoint)
	place.Stack, place.Settings = prefix+id, maps.Clone(values)
	place.Name = "account " + aws.ToString(caller.Account) + ", " + cfg.Region
	r := &run{id: id, progress: progress, account: aws.ToString(caller.Account), partition: arn[1],
		cdk: &local.CDK{Top: top, State: filepath.Join(top, ".local", "acceptance", id),
			Environment: append(os.Environ(), "AWS_REGION="+cfg.Region, "AWS_DEFAULT_REGION="+cfg.Region)},
		Deployment: &place, Timeout: patience}
	if place.Profile != "" {
		r.cdk.Environment = append(r.cdk.Environment, "AWS_PROFILE="+place.Profile)
	}
	r.Command = func(ctx context.Context, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, program, append(args, "--stack", r.Stack)...)
		cmd.Env = r.cdk.Environment
		return cmd
	}
	return r, nil
}

// do deploys and checks everything, and returns the report.
func (r *run) do(ctx context.Context) (report checks.Report, err error) {
	if err := os.MkdirAll(r.cdk.State, 0o700); err != nil {
		return report, err
	}
	if err := r.deploy(ctx); err != nil {
		return report, err
	}
	r.Arrivals = checks.NewArrivals(r.AWS, r.Queues)
	rows := slices.Concat(r.Rows())
	err = r.progress.Step("sending webhooks", func() error { return r.Run(ctx, rows) })
	return checks.NewReport(rows), err
}

// patience is how long to wait for what must happen. Lambda tries a failed event again after one minute and after
// two more (AWS, "How Lambda handles errors and retries with asynchronous invocation":
// https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-error-handling.html).
const patience = 6 * time.Minute

// deploy deploys the stacks.
func (r *run) deploy(ctx context.Context) error {
	emulated := map[string]string{}
	r.Settings["stackName"] = r.Stack
	r.Settings["tokenManagerId"] = cmp.Or(r.Settings["tokenManagerId"], settings.Named("tokenManagerId").Example)
	if r.Endpoint != "" {
		r.Settings[settings.LocalKey], emulated["local"] = "true", "true"
	}
	if checks.UsesMTLS(r.Settings) {
		r.Identity = paymenttest.NewIdentity()
		certificates, named := checks.NewCertificates(r.Identity)
		r.Certificates = certificates
		maps.Copy(r.Settings, named)
		r.Settings["truststore"] = filepath.Join(r.cdk.State, "truststore.pem")
		if err := os.WriteFile(r.Settings["truststore"], r.Identity.CA.PEM(), 0o600); err != nil {
			return err
		}
	}
	if err := r.deployService(ctx); err != nil {
		return err
	}
	r.Settings["baseUrl"], r.Settings["authUrl"] = r.PaymentService, r.PaymentService
	outputs, err := r.deployApp(ctx, "Payhook", ".", r.Settings)
	if err == nil {
		err = r.SetOutputs(outputs[r.Stack], deployment.DefaultID)
	}
	if err != nil {
		return err
	}
	consumer, receiver := r.Stack+"-Consumer", r.Stack+"-Receiver"
	maps.Copy(emulated, map[string]string{"eventBusName": r.Bus, "stackName": consumer,
		"rules": strings.Join(checks.Rules(), ","),
		// The bus for another account is in the same account.
		"sourceAccount": r.account, "receiverStackName": receiver, "receiverBus": strings.ToLower(receiver),
		"targetBus": fmt.Sprintf("arn:%s:events:%s:%s:event-bus/%s", r.partition, r.Region, r.account,
			strings.ToLower(receiver))})
	if outputs, err = r.deployApp(ctx, "the consumer", "events/consumer", emulated, "--parameters",
		consumer+":ClaimBucket="+r.ClaimBucket); err != nil {
		return err
	}
	if err := r.SetConsumer(outputs[consumer], outputs[receiver]); err != nil {
		return err
	}
	if r.Endpoint != "" {
		r.WebhookURL = deployment.FunctionURL(r.Endpoint, r.WebhookURL)
	}
	if err := r.StoreCredentials(ctx, r.state.ClientID, r.state.ClientSecret); err != nil {
		return err
	}
	// DNS and API Gateway need minutes for a domain name.
	return r.progress.Step("waiting for "+r.WebhookURL, func() error {
		return checks.Poll(ctx, 15*time.Minute, 5*time.Second, func() (bool, error) {
			// Without a body, it has no effect.
			answer, err := r.Sender.Send(ctx, paymenttest.Webhook{URL: r.WebhookURL})
			return err == nil && answer.Status == http.StatusBadRequest, ctx.Err()
		})
	})
}

// deployService deploys the simulated payment service, of which an assembly of the CDK is written by hand.
func (r *run) deployService(ctx context.Context) error {
	source := filepath.Join(r.cdk.Top, "infra", "acceptance", "service")
	assembly, name := filepath.Join(r.cdk.State, "service.out"), r.Stack+"-Service"
	// The function is compiled for the processor of this machine, where an emulator runs it.
	programs, err := build.Programs(source, runtime.GOARCH, "payhook.example/infra/acceptance/service")
	if err != nil {
		return err
	}
	built, err := build.Package(programs["service"], nil)
	if err := errors.Join(err, os.MkdirAll(assembly, 0o700),
		os.WriteFile(filepath.Join(assembly, "function.zip"), built, 0o600)); err != nil {
		return err
	}
	values := strings.NewReplacer("<Name>", name, "<Digest>", fmt.Sprintf("%x", sha256.Sum256(built)), "<Architecture>",
		map[string]string{"amd64": "x86_64", "arm64": "arm64"}[runtime.GOARCH])
	if err := copyFiles(filepath.Join(source, "assembly"), assembly, values); err != nil {
		return err
	}
	outputs, err := r.deployAssembly(ctx, "the simulated payment service", assembly)
	if err != nil {
		return err
	}
	service, err := checks.ServiceOptions(r.Settings)
	if err != nil {
		return err
	}
	r.service, r.PaymentService = outputs[name]["FunctionName"], outputs[name]["ServiceUrl"]
	if r.Endpoint != "" {
		r.PaymentService = deployment.FunctionURL(r.Endpoint, r.PaymentService)
	}
	r.PaymentService = strings.TrimRight(r.PaymentService, "/")
	r.state, r.Change = paymenttest.NewState(service.State), r.change
	r.Sender = paymenttest.Sender{Scheme: service.Scheme, Identity: r.Identity,
		Client: &http.Client{Timeout: time.Minute}}
	return r.NewKey(ctx)
}

// change changes the state and gives it to the function, which answers with it when this returns (AWS, "Lambda
// function states": https://docs.aws.amazon.com/lambda/latest/dg/functions-states.html).
func (r *run) change(ctx context.Context, do func(*paymenttest.State)) error {
	do(&r.state)
	text, err := json.Marshal(r.state)
	if err != nil {
		return err
	}
	client := lambda.NewFromConfig(r.AWS)
	_, err = client.UpdateFunctionConfiguration(ctx, &lambda.UpdateFunctionConfigurationInput{FunctionName: &r.service,
		Environment: &types.Environment{Variables: map[string]string{"STATE": string(text)}}})
	if err == nil {
		err = lambda.NewFunctionUpdatedV2Waiter(client).Wait(ctx,
			&lambda.GetFunctionInput{FunctionName: &r.service}, patience)
	}
	if err != nil {
		return fmt.Errorf("the state of the simulated payment service: %w", err)
	}
	return nil
}

// deployApp deploys all stacks of the CDK app in a folder of the project, so that they can be deleted.
func (r *run) deployApp(ctx context.Context, what, folder string, values map[string]string,
	flags ...string) (outputs map[string]map[string]string, err error) {
	assembly, err := r.cdk.Synth(ctx, filepath.Join(r.cdk.Top, folder), filepath.Base(folder)+".out", values)
	if err == nil {
		err = copyFiles(assembly, assembly, unprotected)
	}
	if err != nil {
		return nil, err
	}
	return r.deployAssembly(ctx, what, assembly, flags...)
}

// deployAssembly deploys all stacks of an assembly with the tag of the run, and returns their outputs. CloudFormation
// gives the tags of a stack to its resources.
func (r *run) deployAssembly(ctx context.Context, what, assembly string,
	flags ...string) (outputs map[string]map[string]string, err error) {
	return outputs, r.progress.Step("deploying "+what, func() error {
		outputs, err = r.cdk.Deploy(ctx, assembly, append(flags, "--tags", RunTag+"="+r.id), "--all")
		return err
	})
}

// copyFiles copies the JSON files of a folder to another, which can be the same, with other values.
func copyFiles(from, to string, values *strings.Replacer) error {
	files, err := filepath.Glob(filepath.Join(from, "*.json"))
	for _, file := range files {
		text, problem := os.ReadFile(file)
		if problem == nil {
			problem = os.WriteFile(filepath.Join(to, filepath.Base(file)), []byte(values.Replace(string(text))), 0o600)
		}
		err = errors.Join(err, problem)
	}
	return err
}

// unprotected changes templates so that CloudFormation deletes every resource with its stack, and protects none. It
// schedules the deletion of KMS keys, because AWS deletes no key at once. The CLI uploads a template under a hash of
// what it was before; that of another run differs, because the templates have the names of their run.
var unprotected = strings.NewReplacer(
	`"DeletionPolicy": "Retain"`, `"DeletionPolicy": "Delete"`,
	`"DeletionPolicy": "RetainExceptOnCreate"`, `"DeletionPolicy": "Delete"`,
	`"DeletionProtectionEnabled": true`, `"DeletionProtectionEnabled": false`,
	`"terminationProtection": true`, `"terminationProtection": false`, // in manifest.json
)
