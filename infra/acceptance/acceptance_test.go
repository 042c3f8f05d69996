// Package acceptance checks Payhook in an account of AWS, with the rows of the end-to-end test: make acceptance. The
// private keys that sign webhooks stay in the process of the test.
package acceptance

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	lambdatypes "github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/smithy-go"

	"payhook.example/infra/build"
	"payhook.example/infra/checks"
	"payhook.example/infra/local"
	"payhook.example/infra/stack"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

var (
	place stack.Stack
	given = map[string]string{} // settings of Payhook
	left  = flag.String("delete", "", "only delete what the run with this `ID` has left")
)

func init() {
	flag.StringVar(&place.Profile, "profile", "", "the AWS profile")
	flag.StringVar(&place.Region, "region", "", "the AWS region")
	flag.Func("c", "a setting of Payhook, `KEY=VALUE`; may be repeated", func(text string) error {
		return settings.ParsePairs(given, text, settings.AllExcept("baseUrl", "authUrl", "stackName", "eventBusName",
			"truststore", "clientCertPins", "clientCertSubjects", "revokedKeys")) // the run chooses these
	})
}

// In an emulator, the test deploys, sends one event and deletes.
func TestAcceptance(t *testing.T) {
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt)
	defer stop()
	top, err := stack.Top()
	if err != nil {
		t.Fatal(err)
	}
	emulated := os.Getenv("PAYHOOK_ACCEPTANCE") == ""
	if emulated {
		emulate(t, top)
		given = map[string]string{"evidence": "1d", "tokenStore": settings.InParameter}
	}
	if given["domainName"] != "" && given["hostedZoneId"] == "" || strings.HasSuffix(given["evidence"], "compliance") {
		t.Fatal("domainName needs hostedZoneId, and evidence in compliance mode could not be deleted")
	}
	id := cmp.Or(*left, strings.ToLower(rand.Text()[:8]))
	d, _, err := stack.Find(ctx, place)
	if err != nil {
		t.Fatal(err)
	}
	d.StackName, d.Settings = "PayhookAcceptance-"+id, given
	profile := cmp.Or(d.Profile, os.Getenv("AWS_PROFILE"))
	cdk := &local.CDK{Top: top, State: filepath.Join(top, ".local/acceptance", id), Environment: append(os.Environ(),
		"AWS_REGION="+d.Region, "AWS_DEFAULT_REGION="+d.Region, "AWS_PROFILE="+profile)}
	r := &run{cdk: cdk, progress: local.NewProgress(os.Stdout)}
	// Lambda tries a failed event again after one minute and after two more:
	// https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-error-handling.html
	r.Subject = checks.Subject{Stack: d, Timeout: 6 * time.Minute, Change: r.change}
	r.Command = func(ctx context.Context, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, filepath.Join(top, ".local/bin/payhook"),
			append(args, "--stack", d.StackName)...)
		cmd.Env = cdk.Environment
		return cmd
	}
	again := fmt.Sprintf("make acceptance ARGS=%q", "--delete "+id+place.Flags())
	defer func() {
		if err := r.remove(context.WithoutCancel(ctx)); err != nil {
			t.Errorf("Not everything is deleted; to try again: %s\n%v", again, err)
		}
	}()
	if *left != "" {
		return
	}
	r.progress.Say("run %s in %s; to delete what it leaves if it is killed: %s", id, r.Stack.Region, again)
	ctx, cancel := context.WithTimeout(ctx, 40*time.Minute) // the rest of -timeout is for the deletion
	defer cancel()
	if err := r.deploy(ctx); err != nil {
		t.Fatal(err)
	}
	rows, _ := r.Rows()
	if emulated {
		rows = rows[:2] // the first token, and one event
	}
	err = r.progress.Step("sending webhooks", func() error { return r.Run(ctx, rows) })
	wrong, failed := checks.Print(os.Stdout, rows)
	if err := errors.Join(err, failed); err != nil || wrong > 0 {
		t.Errorf("a check is wrong: %v", err)
	}
}

// emulate starts an emulator and makes it what the AWS variables mean.
func emulate(t *testing.T, top string) {
	if os.Getenv("PAYHOOK_E2E") == "" {
		t.Skip("it deploys to an account of AWS (make acceptance), or to an emulator (make test-e2e)")
	}
	state := filepath.Join(top, ".local", "acceptance-test")
	if _, err := local.Prepare(t.Context(), top, state, local.NewProgress(os.Stdout)); err != nil {
		t.Fatal(err)
	}
	emulator, err := local.StartEmulator(context.Background(), top, state, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(emulator.Stop)
	for _, variable := range append(local.CDKEnvironment(top), "AWS_PROFILE=", "AWS_ENDPOINT_URL="+emulator.Endpoint) {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
}

// run is one run, with what it deployed.
type run struct {
	checks.Subject
	cdk      *local.CDK // for the account and region
	progress *local.Progress
	state    paymenttest.State // with which the simulated payment service answers
}

// deploy deploys the simulated payment service, Payhook and a consumer.
func (r *run) deploy(ctx context.Context) error {
	service, consumer := r.Stack.StackName+"-Service", r.Stack.StackName+"-Consumer"
	ofConsumer := map[string]string{"stackName": consumer, "rules": strings.Join(checks.Rules(), ",")}
	r.Stack.Settings["stackName"] = r.Stack.StackName
	r.Stack.Settings["tokenManagerId"] = cmp.Or(r.Stack.Settings["tokenManagerId"],
		settings.ByKey("tokenManagerId").Example)
	if r.Stack.Endpoint != "" {
		r.Stack.Settings[settings.LocalKey], ofConsumer["local"] = "true", "true"
	}
	// The service is compiled for the processor of this machine, where an emulator runs it.
	programs, err := build.Programs(r.cdk.Top, runtime.GOARCH, false, "payhook.example/infra/acceptance/service")
	program, failed := build.Package(programs["service"], nil)
	assembly := filepath.Join(r.cdk.State, service+".out")
	if err := errors.Join(err, failed, os.MkdirAll(assembly, 0o700),
		os.WriteFile(filepath.Join(assembly, "function.zip"), program, 0o600)); err != nil {
		return err
	}
	if checks.UsesMTLS(r.Stack.Settings) {
		r.Identity = paymenttest.NewIdentity()
		certificates, named := checks.NewCertificates(r.Identity)
		r.Certificates, r.Stack.Settings["truststore"] = certificates, filepath.Join(r.cdk.State, "truststore.pem")
		maps.Copy(r.Stack.Settings, named)
		if err := os.WriteFile(r.Stack.Settings["truststore"], r.Identity.CA.PEM(), 0o600); err != nil {
			return err
		}
	}
	options, err := checks.ServiceOptions(r.Stack.Settings)
	outputs, err := r.deployStack(ctx, err, filepath.Join(r.cdk.Top, "infra/acceptance/service/assembly"), service)
	if err != nil {
		return err
	}
	r.Stack.PaymentService = strings.TrimRight(stack.FunctionURL(r.Stack.Endpoint, outputs["ServiceUrl"]), "/")
	r.Stack.Settings["baseUrl"], r.Stack.Settings["authUrl"] = r.Stack.PaymentService, r.Stack.PaymentService
	r.state = paymenttest.NewState(options.State)
	r.Sender = paymenttest.Sender{Scheme: options.Scheme, Identity: r.Identity,
		Client: &http.Client{Timeout: time.Minute}}
	_, err = r.cdk.Synth(ctx, r.cdk.Top, r.Stack.StackName+".out", r.Stack.Settings)
	outputs, err = r.deployStack(ctx, errors.Join(r.NewKey(ctx), err), "", r.Stack.StackName)
	if err == nil {
		err = r.Stack.SetOutputs(outputs, stack.DefaultID)
	}
	if err != nil {
		return err
	}
	ofConsumer["eventBusName"] = r.Stack.Bus
	_, err = r.cdk.Synth(ctx, filepath.Join(r.cdk.Top, "events/consumer"), consumer+".out", ofConsumer)
	outputs, err = r.deployStack(ctx, err, "", consumer, "--parameters",
		consumer+":LargeEventBucket="+r.Stack.LargeEventBucket)
	if err == nil {
		err = errors.Join(r.SetConsumer(outputs),
			r.StoreCredentials(ctx, r.state.ClientID, r.state.ClientSecret))
	}
	if err != nil {
		return err
	}
	r.Arrivals = checks.NewArrivals(r.Stack.AWS, r.Stack.Queues)
	r.Stack.WebhookURL = stack.FunctionURL(r.Stack.Endpoint, r.Stack.WebhookURL)
	r.progress.Say("waiting for %s, which takes minutes for a new domain name", r.Stack.WebhookURL)
	return checks.Poll(ctx, 15*time.Minute, 5*time.Second, func() (bool, error) {
		answer, err := r.Sender.Send(ctx, paymenttest.Webhook{URL: r.Stack.WebhookURL}) // without a body: no effect
		return err == nil && answer.Status == http.StatusBadRequest, ctx.Err()
	})
}

// change changes the state and gives it to the function, which answers with it when this returns (AWS, "Lambda
// function states": https://docs.aws.amazon.com/lambda/latest/dg/functions-states.html).
func (r *run) change(ctx context.Context, do func(*paymenttest.State)) error {
	do(&r.state)
	text, _ := json.Marshal(r.state) // has an encoding
	client, name := lambda.NewFromConfig(r.Stack.AWS), r.Stack.StackName+"-Service"
	if _, err := client.UpdateFunctionConfiguration(ctx, &lambda.UpdateFunctionConfigurationInput{FunctionName: &name,
		Environment: &lambdatypes.Environment{Variables: map[string]string{"STATE": string(text)}}}); err != nil {
		return err
	}
	return lambda.NewFunctionUpdatedV2Waiter(client).Wait(ctx, &lambda.GetFunctionInput{FunctionName: &name}, r.Timeout)
}

// deployStack deploys the stack with a name, whose assembly has the same name and can be made from another one, and
// returns its outputs, or an earlier error. CloudFormation deletes every resource with its stack, and schedules the
// deletion of KMS keys. The CLI uploads a template under a hash of what it was before; that of another run differs,
// because it has the name of its run.
func (r *run) deployStack(ctx context.Context, err error, from, name string,
	flags ...string) (outputs map[string]string, _ error) {
	assembly := filepath.Join(r.cdk.State, name+".out")
	values := strings.NewReplacer(`"DeletionPolicy": "Retain"`, `"DeletionPolicy": "Delete"`,
		`"DeletionPolicy": "RetainExceptOnCreate"`, `"DeletionPolicy": "Delete"`,
		`"DeletionProtectionEnabled": true`, `"DeletionProtectionEnabled": false`,
		`"terminationProtection": true`, `"terminationProtection": false`, // in manifest.json
		"<Name>", name, "<Architecture>", strings.ReplaceAll(runtime.GOARCH, "amd64", "x86_64"))
	files, _ := filepath.Glob(filepath.Join(cmp.Or(from, assembly), "*.json"))
	for _, file := range files {
		text, problem := os.ReadFile(file)
		changed := []byte(values.Replace(string(text)))
		err = errors.Join(err, problem, os.WriteFile(filepath.Join(assembly, filepath.Base(file)), changed, 0o600))
	}
	if err != nil {
		return nil, err
	}
	err = r.progress.Step("deploying "+name, func() error {
		all, err := r.cdk.Deploy(ctx, assembly, flags, "--all")
		outputs = all[name]
		return err
	})
	return outputs, err
}

// remove deletes the stacks and what they leave, and can be repeated. The consumer's rules are on Payhook's bus.
func (r *run) remove(ctx context.Context) (failed error) {
	client := cloudformation.NewFromConfig(r.Stack.AWS)
	for _, name := range []string{r.Stack.StackName + "-Consumer", r.Stack.StackName, r.Stack.StackName + "-Service"} {
		failed = errors.Join(failed, r.progress.Step("deleting "+name, func() (err error) {
			for range 3 { // S3 writes access logs until the bucket that they are about is gone
				_, missing := client.DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: &name})
				if api, ok := errors.AsType[smithy.APIError](missing); ok && api.ErrorCode() == "ValidationError" {
					return nil // there is no stack
				}
				var buckets []string
				buckets, err = stack.Resources(ctx, client, name, "AWS::S3::Bucket")
				for _, bucket := range buckets {
					err = errors.Join(err, empty(ctx, r.Stack.S3(), bucket))
				}
				_, denied := client.DeleteStack(ctx, &cloudformation.DeleteStackInput{StackName: &name})
				deleted := cloudformation.NewStackDeleteCompleteWaiter(client,
					func(o *cloudformation.StackDeleteCompleteWaiterOptions) { o.MinDelay = time.Second })
				err = errors.Join(err, denied, deleted.Wait(ctx,
					&cloudformation.DescribeStacksInput{StackName: &name}, 30*time.Minute))
			}
			return errors.Join(err, fmt.Errorf("stack %s is left", name))
		}))
	}
	// The token function made it, so CloudFormation does not delete it.
	_, err := ssm.NewFromConfig(r.Stack.AWS).DeleteParameters(ctx,
		&ssm.DeleteParametersInput{Names: []string{"/payhook/" + r.Stack.StackName + "/token"}})
	return errors.Join(failed, err)
}

// empty deletes all versions in a bucket, also locked evidence. CloudFormation deletes only empty buckets.
func empty(ctx context.Context, client *s3.Client, bucket string) error {
	pages := s3.NewListObjectVersionsPaginator(client, &s3.ListObjectVersionsInput{Bucket: &bucket})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, m := range page.DeleteMarkers {
			page.Versions = append(page.Versions, types.ObjectVersion{Key: m.Key, VersionId: m.VersionId})
		}
		for _, v := range page.Versions {
			in := &s3.DeleteObjectInput{Bucket: &bucket, Key: v.Key, VersionId: v.VersionId}
			if _, err := client.DeleteObject(ctx, in); err == nil {
				continue
			}
			in.BypassGovernanceRetention = aws.Bool(true) // S3 rejects it for a bucket without Object Lock
			if _, err := client.DeleteObject(ctx, in); err != nil {
				return err
			}
		}
	}
	return nil
}
