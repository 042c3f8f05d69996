// Package payhook provides the construct of Payhook: everything that receives the
// webhooks of a payment service, publishes their events on an EventBridge bus, and keeps
// an OAuth token for the service in Secrets Manager or Parameter Store.
//
//	hook := payhook.New(stack, jsii.String("Payments"), &payhook.Props{
//		BaseURL:        "https://api.payments.example",
//		AuthURL:        "https://auth.payments.example",
//		TokenManagerID: "manager-1",
//	})
//
// An app needs Go to synthesize it, because New builds the Lambda functions from the packages of this module. Several
// constructs can be in one stack, and in several stacks of one account: names that the construct chooses contain the
// names of the stack and of the construct.
//
// Methods of this package are called from one goroutine, as those of the CDK are.
package payhook

import (
	_ "embed"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	texttemplate "text/template"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/aws-cdk-go/awscdk/v2/interfaces/interfacesawscloudwatch"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/payment"
	"payhook.example/shared/settings"
)

// Payhook is the construct that [New] creates.
type Payhook struct {
	constructs.Construct
	conf     settings.Settings
	packages map[string]string // paths of the packages by the functions, and of the truststore

	ledger, keysTable awsdynamodb.ITableV2
	bus               awsevents.IEventBus
	buckets           buckets
	webhook           webhook
	redrive           scheduled
	token             token
	alarmTopic        awssns.ITopic
	alarms            map[string]awscloudwatch.Alarm // by their names without that of the stack
	charts            []awscloudwatch.IWidget        // of the alarms
	busFailures       awssqs.Queue                   // nil unless a customer managed key encrypts the bus
	key               awskms.IKey                    // nil: keys of AWS
	stored            []constructs.IConstruct        // what the key encrypts
	customerKeys      []*string                      // ARNs of those that the functions can use
}

// New creates the construct in a stack. It builds the functions for it, which takes
// seconds; the programs are built once for all constructs of an app.
//
// New panics with an error if the props are not valid: the error lists every problem. It also panics if the functions
// cannot be built; the error has the output of the compiler.
//
// If id is "Default", the names of resources contain the name of the stack only, and so do
// the keys of outputs. Otherwise both contain the id.
func New(scope constructs.Construct, id *string, props *Props) *Payhook {
	return create(scope, id, props, buildFunctions)
}

// create creates the construct with the programs that build returns for an architecture, with or without FIPS, by the
// names of the functions.
func create(scope constructs.Construct, id *string, props *Props,
	build func(arch string, fips bool) (map[string][]byte, error)) *Payhook {
	p := &Payhook{}
	constructs.NewConstruct_Override(p, scope, id)
	conf, err := props.resolve(p)
	if err != nil {
		panic(err)
	}
	for _, flag := range featureFlags {
		p.Node().SetContext(jsii.String(flag), true)
	}
	if props == nil { // all that is required is in the context
		props = &Props{}
	}
	p.conf = conf

	programs, err := build(architecture(conf), *conf.UseFIPS)
	if err != nil {
		panic(err)
	}
	folder, err := os.MkdirTemp("", "payhook-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder) // the CDK copies a package when its function is created
	if p.packages, err = packageFunctions(programs, folder, conf.Files()); err != nil {
		panic(err)
	}

	p.key = p.newKey(props.EncryptionKey)
	p.ledger, p.keysTable = p.newLedger(), p.newKeysTable()
	p.newBus(props.Bus)
	p.newArchive()
	p.buckets = p.newBuckets()
	p.token = p.newToken()
	p.newWebhook(newIngress(p, props.OwnershipCertificate))
	p.newRedrive()
	p.protectBus()
	p.newAlarms(props.AlarmTopic)
	p.allowKeyUse(props.EncryptionKey != nil)
	for _, role := range p.roles() { // they have all permissions now
		p.nameByContent(role.Node().FindChild(jsii.String("DefaultPolicy")))
	}
	p.newOutputs(p.newDashboard())
	p.warn(props)
	if conf.Local() {
		p.removeUnsupported()
	}
	return p
}

// Bus returns the bus on which the events are published: Props.Bus, or the one that the
// construct created. Create rules on it.
func (p *Payhook) Bus() awsevents.IEventBus { return p.bus }

// URL returns the URL that receives webhooks.
func (p *Payhook) URL() *string { return p.webhook.ingress.url }

// TokenID returns the ARN of the secret with the access token, with TokenStore parameter the name of the parameter, and
// nil with TokenStore none: what [payhook.example/shared/aws/tokenstore.Source] takes.
func (p *Payhook) TokenID() *string { return p.token.store.id }

// AlarmTopic returns the topic that every alarm notifies: Props.AlarmTopic, or the one that the construct created.
func (p *Payhook) AlarmTopic() awssns.ITopic { return p.alarmTopic }

// Alarms returns the alarms with these names, or every alarm, in the order of their names. alarms.txt describes
// them. A name that no alarm has gives nil, which the CDK rejects.
func (p *Payhook) Alarms(named ...string) []interfacesawscloudwatch.IAlarmRef {
	if len(named) == 0 {
		named = slices.Sorted(maps.Keys(p.alarms))
	}
	var all []interfacesawscloudwatch.IAlarmRef
	for _, name := range named {
		all = append(all, p.alarms[name])
	}
	return all
}

// WebhookAlias returns the alias of the webhook function, through which webhooks reach it.
// A deployment group of CodeDeploy can shift it to the next version.
func (p *Payhook) WebhookAlias() awslambda.Alias { return p.webhook.alias }

// GrantReadToken lets a principal of this account read the access token. It includes kms:Decrypt for customer managed
// keys that encrypt it: that of Props.Encryption and those of [Payhook.UseKey]. It panics with TokenStore none.
func (p *Payhook) GrantReadToken(grantee awsiam.IGrantable) awsiam.Grant {
	t := p.token
	if t.store.id == nil {
		panic("payhook: GrantReadToken: there is no access token, as TokenStore is none")
	}
	p.grantUse(grantee, t.store.service, t.store.context, t.store.arn)
	return awsiam.Grant_AddToPrincipal(&awsiam.GrantOnPrincipalOptions{
		Grantee: grantee, Actions: jsii.Strings(t.store.read), ResourceArns: &[]*string{t.store.arn},
	})
}

// GrantReadLargeEvents lets a principal of this account read the events that are too large for the bus, which package
// [payhook.example/shared/bus] resolves. It includes kms:Decrypt as GrantReadToken does.
func (p *Payhook) GrantReadLargeEvents(grantee awsiam.IGrantable) awsiam.Grant {
	bucket := p.buckets.largeEvents.BucketArn()
	// With an S3 Bucket Key, the context is the ARN of the bucket, and otherwise that of the object (AWS, "Using
	// server-side encryption with AWS KMS keys" and "Reducing the cost of SSE-KMS with Amazon S3 Bucket Keys" in the S3
	// User Guide). A bucket that the stack did not create may have no Bucket Key.
	p.grantUse(grantee, "s3", "aws:s3:arn", bucket, jsii.String(*bucket+"/*"))
	return awsiam.Grant_AddToPrincipal(&awsiam.GrantOnPrincipalOptions{
		Grantee: grantee, Actions: jsii.Strings("s3:GetObject"),
		ResourceArns: &[]*string{p.buckets.largeEvents.ArnForObjects(jsii.String("events/*"))},
	})
}

// featureFlags are the feature flags of the CDK that change resources of the construct. The construct does not depend
// on those of the app (https://docs.aws.amazon.com/cdk/v2/guide/featureflags.html).
var featureFlags = []string{
	"@aws-cdk/aws-iam:minimizePolicies",
	"@aws-cdk/aws-lambda:recognizeLayerVersion",
	"@aws-cdk/aws-s3:serverAccessLogsUseBucketPolicy",
}

// useKeyWarning is the warning that UseKey removes.
const useKeyWarning = "useKey"

// warn adds warnings about settings to the output of the CDK CLI.
func (p *Payhook) warn(props *Props) {
	conf, annotations := p.conf, awscdk.Annotations_Of(p)
	if conf.Encryption == settings.EncryptionCMK && conf.LedgerTable+conf.LargeEventBucket+conf.ParkingBucket != "" {
		annotations.AddWarningV2(jsii.String("payhook:"+useKeyWarning), jsii.String("encryption is cmk, and a table "+
			"or bucket exists already: the stack does not change its key. If that is a customer managed key, let the "+
			"functions use it by Payhook.UseKey. Otherwise, webhooks are answered 503."), nil)
	}
	if conf.AlarmEmail == "" && props.AlarmTopic == nil && !conf.Local() {
		annotations.AddWarningV2(jsii.String("payhook:alarmEmail"), jsii.String("alarmEmail is not set: this stack "+
			"has no subscriber for its alarms. Add a subscription to the topic of the output AlarmTopic, or set "+
			"alarmEmail."), nil)
	}
	if props.Bus != nil && !*conf.ProtectBus {
		annotations.AddInfoV2(jsii.String("payhook:protectBus"), jsii.String("The bus is not created by Payhook and "+
			"protectBus is not set, so its policy is not changed: every principal of the account with "+
			"events:PutEvents can publish events on it that look authenticated."))
	}
}

// newOutputs creates the outputs that every stack has, and those of the access token.
func (p *Payhook) newOutputs(dashboard *string) {
	p.output(settings.WebhookURLOutput, "the URL that receives webhooks", p.webhook.ingress.url)
	p.output(settings.EventBusNameOutput, "the bus with the events", p.bus.EventBusName())
	p.output("EventBusArn", "the ARN of the bus, for rules in other stacks", p.bus.EventBusArn())
	p.output(settings.LedgerTableOutput, "the table with one item per eventId", p.ledger.TableName())
	p.output(settings.KeysTableOutput, "the table with the service's public keys", p.keysTable.TableName())
	p.output(settings.LargeEventBucketOutput, "the bucket with the large events that the bus refers to",
		p.buckets.largeEvents.BucketName())
	p.output(settings.ParkingBucketOutput, "the bucket with parked deliveries and events",
		p.buckets.parking.BucketName())
	p.output(settings.WebhookFunctionOutput, "the function that receives webhooks, with its alias",
		p.webhook.invokedAs())
	p.output(settings.RedriveFunctionOutput, "the function that publishes pending events, with its alias",
		p.redrive.invokedAs())
	p.output(settings.WebhookLogsOutput, "the log group of the webhook function", p.webhook.logs.LogGroupName())
	p.output(settings.RedriveLogsOutput, "the log group of the redrive function", p.redrive.logs.LogGroupName())
	p.output("AlarmTopic", "the topic that every alarm notifies", p.alarmTopic.TopicArn())
	p.output("Dashboard", "the CloudWatch dashboard", dashboard)
	p.output(settings.VersionOutput, "the version of Payhook, or its commit, that wrote this template",
		jsii.String(payment.Version()))
	p.output("SubscriptionDetails", "information for the operator's implementation team", p.subscriptionDetails())
	if p.conf.StackName() != *awscdk.Stack_Of(p).StackName() {
		p.output(settings.FullNameOutput, "what the names of metrics, alarms and the dashboard begin with",
			jsii.String(p.conf.StackName()))
	}
	if !p.conf.UsesToken() {
		return
	}
	if p.conf.TokenStore == settings.InParameter {
		p.output(settings.TokenParameterOutput, "the parameter with the access token", p.token.store.id)
	} else {
		p.output(settings.TokenSecretOutput, "the secret with the access token", p.token.store.id)
	}
	p.output(settings.TokenFunctionOutput, "the function that refreshes the access token, with its alias",
		p.token.invokedAs())
	p.output(settings.TokenLogsOutput, "the log group of the token function", p.token.logs.LogGroupName())
	p.output(settings.CredentialsSecretOutput, "the secret in which to store the client id and secret",
		p.token.credentials.AttrId())
}

// subscription is the information that the service's operator needs for a subscription (the interface, section 5.2),
// and what is needed from the operator: the certificates that both sides exchange out of band (section 5.3). Amazon
// Trust Services issues the public certificates of AWS Certificate Manager and those of function URLs (AWS, "AWS
// Certificate Manager public certificate characteristics and limitations").
//
//go:embed subscription.txt
var subscription string

func (p *Payhook) subscriptionDetails() *string {
	var details strings.Builder
	if err := texttemplate.Must(texttemplate.New("").Parse(subscription)).Execute(&details, struct {
		settings.Settings
		URL      string
		MaxBytes int
	}{p.conf, *p.webhook.ingress.url, settings.SafePayloadBytes}); err != nil {
		panic(err) // subscription.txt is part of the program
	}
	return jsii.String(details.String())
}

// output creates an output. Its key is the name, after the id of the construct unless that is "Default".
func (p *Payhook) output(name, description string, value *string) {
	awscdk.NewCfnOutput(p, jsii.String(name), &awscdk.CfnOutputProps{
		Description: jsii.String(description),
		Value:       value,
	}).OverrideLogicalId(jsii.String(idIn(awscdk.Stack_Of(p), p) + name))
}

// toJSON returns the JSON of a value that has one, as all values of the CDK have.
func toJSON(value any) string {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		panic(err)
	}
	return string(text)
}

// cut returns at most the first n characters of a text that has only ASCII.
func cut(text string, n int) string { return text[:min(len(text), n)] }

// keptUnlessLocal returns the removal policy of data and logs: they are retained, unless the stack is local. The
// rollback of a failed deployment deletes what it created, which is empty, and a secret costs money.
func keptUnlessLocal(conf settings.Settings) awscdk.RemovalPolicy {
	if conf.Local() {
		return awscdk.RemovalPolicy_DESTROY
	}
	return awscdk.RemovalPolicy_RETAIN_ON_UPDATE_OR_DELETE
}

// resources returns the resources that the construct has created so far.
func (p *Payhook) resources() []awscdk.CfnResource {
	var found []awscdk.CfnResource
	for _, node := range *p.Node().FindAll(constructs.ConstructOrder_POSTORDER) {
		if *awscdk.CfnResource_IsCfnResource(node) {
			found = append(found, node.(awscdk.CfnResource))
		}
	}
	return found
}

// section returns the text below a title in a file of texts, in one line. The file must have it.
func section(texts, title string) string {
	_, rest, ok := strings.Cut("\n"+texts, "\n# "+title+"\n")
	if !ok {
		panic("payhook: no text has the title " + title)
	}
	text, _, _ := strings.Cut(rest, "\n# ")
	return strings.Join(strings.Fields(text), " ")
}

// findings has, for findings of checkov, why they are no defects. make audit fails unless checkov finds exactly those
// that are explained.
//
//go:embed findings.txt
var findings string

// explain says in the template's metadata, where checkov looks for it, why a finding about a resource is no defect.
func explain(made constructs.IConstruct, finding string) {
	if resource := made.Node().DefaultChild(); resource != nil {
		made = resource
	}
	resource, all := made.(awscdk.CfnResource), []any{}
	if given, ok := resource.GetMetadata(jsii.String("checkov")).(map[string]any); ok {
		all = given["skip"].([]any)
	}
	id, _, _ := strings.Cut(finding, " ")
	resource.AddMetadata(jsii.String("checkov"), map[string]any{
		"skip": append(all, map[string]any{"id": id, "comment": section(findings, finding)})})
}

// encrypted notes a construct that was made with the key, for allowKeyUse. Without a key, it explains the finding.
func (p *Payhook) encrypted(made constructs.IConstruct, finding string) {
	if p.key == nil {
		explain(made, finding)
	}
	p.stores(made)
}

// statement returns a statement that allows actions on resources, in a policy of a role, or to a service in a policy
// of a resource.
func statement(sid, service string, actions []string, resources []*string,
	conditions map[string]any) awsiam.PolicyStatement {
	props := &awsiam.PolicyStatementProps{Actions: jsii.Strings(actions...), Resources: &resources}
	if service != "" {
		props.Sid = &sid
		props.Principals = &[]awsiam.IPrincipal{awsiam.NewServicePrincipal(&service, nil)}
	}
	if conditions != nil {
		props.Conditions = &conditions
	}
	return awsiam.NewPolicyStatement(props)
}

// arn returns the ARN of a resource in the account and Region of the stack.
func (p *Payhook) arn(service, resource string) *string {
	stack := awscdk.Stack_Of(p)
	return arn(stack.Partition(), service, stack.Region(), stack.Account(), resource)
}

func arn(partition *string, service string, region, account *string, resource string) *string {
	return jsii.String(strings.Join([]string{"arn", *partition, service, *region, *account, resource}, ":"))
}

// unsupported are the resource types that MiniStack 1.5.33, the emulator of local runs,
// cannot deploy. It has no alarms on metric math either.
var unsupported = []string{
	"AWS::Events::Archive",
	"AWS::Events::EventBusPolicy",
	"AWS::SecretsManager::ResourcePolicy",
	"AWS::SecretsManager::RotationSchedule",
}

// removeUnsupported removes the resources that the emulator does not support. The remaining
// resources must not refer to them.
func (p *Payhook) removeUnsupported() {
	for _, resource := range p.resources() {
		if slices.Contains(unsupported, *resource.CfnResourceType()) {
			resource.Node().Scope().Node().TryRemoveChild(resource.Node().Id())
		}
	}
	awscdk.Annotations_Of(p).AddInfoV2(jsii.String("payhook:"+settings.LocalKey), jsii.String(
		"The local emulator has no alarms on metric math and no "+strings.Join(unsupported, ", ")+
			": these are left out."))
}
