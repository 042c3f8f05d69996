package acceptance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	smithytime "github.com/aws/smithy-go/time"
	"golang.org/x/sync/errgroup"

	service "payhook.example/infra/acceptance/service/names"
	"payhook.example/infra/local"
	output "payhook.example/shared/names"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
	"payhook.example/shared/signature"
)

// deployed is what a run has deployed.
type deployed struct {
	local.Deployment
	run     *Run
	service *remoteService
	outputs map[string]string // of Payhook's stack
	clock   *passing          // of an emulator's CloudWatch; nil before it is used
}

// deploy deploys the three stacks.
func (r *Run) deploy(ctx context.Context, report *Report) (*deployed, error) {
	names := stacksOf(r.ID)
	conf := r.settings()
	var identity *paymenttest.Identity
	var certificates local.Certificates
	if usesMTLS(conf) {
		var err error
		if identity, certificates, err = r.newIdentity(conf); err != nil {
			return nil, err
		}
	}
	consumerOut, serviceOut := filepath.Join(r.opts.State, "consumer.out"), filepath.Join(r.opts.State, "service.out")
	var outputs map[string]string
	group, together := errgroup.WithContext(ctx)
	group.Go(func() error {
		return r.step("synthesizing the consumer", func() error {
			values := map[string]string{"eventBusName": settings.DefaultBusName(names.payhook),
				"stackName": names.consumer, "rules": strings.Join(local.Rules(), ","),
				// The other account's bus, in the same account.
				"sourceAccount": r.target.Account, "receiverStackName": names.receiver,
				"receiverBus": receiverBus(r.ID), "targetBus": fmt.Sprintf("arn:%s:events:%s:%s:event-bus/%s",
					partition(r.target.AWS.Region), r.target.AWS.Region, r.target.Account, receiverBus(r.ID))}
			if r.target.emulated() {
				values["local"] = "true"
			}
			return r.synth(together, "consumer", filepath.Join(r.opts.Top, "events", "consumer"), consumerOut, values)
		})
	})
	group.Go(func() error {
		return r.step("deploying the simulated payment service", func() (err error) {
			values := map[string]string{service.StackNameContext: names.service}
			if r.target.emulated() {
				values[service.LocalContext] = "true"
			}
			folder := filepath.Join(r.opts.Top, "infra", "acceptance", "service")
			if err := r.synth(together, "service", folder, serviceOut, values); err != nil {
				return err
			}
			stacks, err := r.deployStacks(together, "service", serviceOut, []string{names.service})
			outputs = stacks[names.service]
			return err
		})
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	d := &deployed{run: r}
	var err error
	if d.service, err = r.startService(ctx, outputs, conf); err != nil {
		return nil, err
	}
	d.service.sender.Identity = identity
	conf[settings.BaseURL.Key], conf[settings.AuthURL.Key] = d.service.url, d.service.url
	d.Deployment = local.Deployment{
		Endpoint: r.target.Endpoint, Region: r.target.AWS.Region, Stack: names.payhook, Settings: conf,
		PaymentService: d.service.url,
		AWS:            r.target.AWS, Service: d.service, Client: r.target.Client, Out: r.opts.Out,
		Lacks: r.target.Lacks, Identity: identity, Certificates: certificates,
	}
	payhookOut := filepath.Join(r.opts.State, "payhook.out")
	if err := r.step("deploying Payhook", func() (err error) {
		if err := r.synth(ctx, "payhook", r.opts.Top, payhookOut, conf); err != nil {
			return err
		}
		stacks, err := r.deployStacks(ctx, "payhook", payhookOut, []string{names.payhook})
		d.outputs = stacks[names.payhook]
		return err
	}); err != nil {
		return nil, err
	}
	if err := r.step("deploying the consumer", func() error {
		stacks, err := r.deployStacks(ctx, "consumer", consumerOut, []string{names.receiver, names.consumer},
			"--parameters", names.consumer+":ClaimBucket="+d.outputs[output.ClaimBucketOutput])
		if err != nil {
			return err
		}
		return d.ReadNames(d.outputs, stacks[names.consumer], stacks[names.receiver])
	}); err != nil {
		return nil, err
	}
	replace := strings.NewReplacer("${AWS::AccountId}", r.target.Account, "${AWS::Region}", r.target.AWS.Region,
		"${AWS::Partition}", partition(r.target.AWS.Region))
	for _, asset := range assets(consumerOut, serviceOut, payhookOut) {
		report.Assets = append(report.Assets, replace.Replace(asset))
	}
	if settingOr(conf, settings.DomainName) != "" {
		if err := r.step("waiting for "+d.WebhookURL, func() error { return d.awaitEndpoint(ctx) }); err != nil {
			return nil, err
		}
	}
	return d, d.storeCredentials(ctx)
}

// newIdentity makes the client certificates of the service, and the settings that know them.
// The private keys stay in this process.
func (r *Run) newIdentity(conf map[string]string) (*paymenttest.Identity, local.Certificates, error) {
	identity := paymenttest.NewIdentity()
	certificates := local.NewCertificates(identity)
	truststore, err := local.TruststoreOf(identity)
	if err != nil {
		return nil, certificates, err
	}
	file := filepath.Join(r.opts.State, "truststore.pem")
	maps.Copy(conf, certificates.Settings(identity))
	conf[settings.Truststore.Key] = file
	return identity, certificates, os.WriteFile(file, truststore, 0o600)
}

// awaitEndpoint waits until the function answers at the domain name: DNS and API Gateway take a
// while.
func (d *deployed) awaitEndpoint(ctx context.Context) error {
	for deadline := time.Now().Add(15 * time.Minute); ; {
		answer, err := d.send(ctx, paymenttest.Webhook{}) // without a body, it has no effect
		if err == nil && strings.HasPrefix(answer.Header.Get("Content-Type"), "application/problem+json") {
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

// settings are the settings of Payhook's stack, without the URLs of the service.
func (r *Run) settings() map[string]string {
	conf := maps.Clone(r.opts.Settings)
	if conf == nil {
		conf = map[string]string{}
	}
	conf[settings.StackName.Key] = stacksOf(r.ID).payhook
	if conf[settings.TokenManagerID.Key] == "" {
		conf[settings.TokenManagerID.Key] = settings.TokenManagerID.Example
	}
	if r.target.emulated() {
		conf[settings.Local.Key] = "true"
	}
	return conf
}

func settingOr(conf map[string]string, s *settings.Setting) string {
	if v, ok := conf[s.Key]; ok {
		return v
	}
	return s.Default
}

// synth writes the templates of a CDK app.
func (r *Run) synth(ctx context.Context, name, folder, out string, values map[string]string) error {
	args := []string{"synth", "--quiet", "--output", out}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		args = append(args, "-c", key+"="+values[key])
	}
	return local.CDK(ctx, r.opts.Top, r.log("synth-"+name), folder, r.target.Environment, args...)
}

// deployStacks deploys the stacks of an assembly, and returns the outputs of each.
// CloudFormation gives the tags of a stack to its resources.
func (r *Run) deployStacks(ctx context.Context, name, assembly string, stacks []string,
	more ...string) (map[string]map[string]string, error) {
	file := filepath.Join(r.opts.State, name+".outputs.json")
	args := append([]string{"deploy", "--all", "--app", assembly, "--require-approval", "never", "--progress", "events",
		"--outputs-file", file, "--tags", RunTag + "=" + r.ID}, more...)
	if err := local.CDK(ctx, r.opts.Top, r.log("deploy-"+name), r.opts.State, r.target.Environment,
		args...); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var outputs map[string]map[string]string
	if err := json.Unmarshal(text, &outputs); err != nil {
		return nil, err
	}
	for _, stack := range stacks {
		if outputs[stack] == nil {
			return nil, fmt.Errorf("stack %s has no outputs", stack)
		}
	}
	return outputs, nil
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

// startService writes the first state of the service.
func (r *Run) startService(ctx context.Context, outputs, conf map[string]string) (*remoteService, error) {
	timestamp, errTimestamp := signature.ParseCarrier(settingOr(conf, settings.TimestampCarrier))
	keyID, errKeyID := signature.ParseKeyIDCarrier(settingOr(conf, settings.KeyIDCarrier))
	format, errFormat := signature.ParseFormat(settingOr(conf, settings.TimestampFormat))
	if err := errors.Join(errTimestamp, errKeyID, errFormat); err != nil {
		return nil, err
	}
	url := outputs[service.ServiceURLOutput]
	if r.target.emulated() {
		url = local.FunctionURL(r.target.Endpoint, url)
	}
	s := &remoteService{
		url: strings.TrimRight(url, "/"), bucket: outputs[service.StateBucketOutput], objects: objects(r.target.AWS),
		sender: paymenttest.Sender{
			Scheme: signature.Scheme{SignatureHeader: settingOr(conf, settings.SignatureHeader), Timestamp: timestamp,
				KeyID: keyID},
			Format: format, Method: settingOr(conf, settings.HTTPMethod), Client: r.target.Client,
		},
		state: paymenttest.NewState(paymenttest.Options{
			TokenManagerID: settingOr(conf, settings.TokenManagerID),
			FormEncoded:    settingOr(conf, settings.CredentialEncoding) == "form",
			KeysBearer:     settingOr(conf, settings.KeysAuth) == "bearer",
		}),
	}
	return s, s.Rotate(ctx)
}

// storeCredentials does what a person does after the first deployment.
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

// assets are the objects that the CDK has left in the bucket of the bootstrap stack, as
// bucket/key.
func assets(assemblies ...string) []string {
	var found []string
	for _, folder := range assemblies {
		files, _ := filepath.Glob(filepath.Join(folder, "*.assets.json"))
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				continue
			}
			var manifest struct {
				Files map[string]struct {
					Destinations map[string]struct{ BucketName, ObjectKey string }
				}
			}
			if json.Unmarshal(text, &manifest) != nil {
				continue
			}
			for _, asset := range manifest.Files {
				for _, to := range asset.Destinations {
					found = append(found, to.BucketName+"/"+to.ObjectKey)
				}
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// redeploy deploys Payhook again with a changed setting.
func (d *deployed) redeploy(ctx context.Context, changes map[string]string) error {
	conf := maps.Clone(d.Settings)
	maps.Copy(conf, changes)
	out := filepath.Join(d.run.opts.State, "again-"+strconv.FormatInt(time.Now().UnixNano(), 36)+".out")
	if err := d.run.synth(ctx, "again", d.run.opts.Top, out, conf); err != nil {
		return err
	}
	_, err := d.run.deployStacks(ctx, "again", out, []string{d.Stack})
	return err
}
