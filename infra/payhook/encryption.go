package payhook

import (
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/regioninfo"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/settings"
)

// newKey returns the key of the setting encryption, which it creates unless the key exists, and nil for keys of AWS.
//
// Three things use keys of AWS in any case: the access logs, which S3 does not deliver to a bucket with SSE-KMS; the
// dead-letter queue of the bus, which must accept messages while the key cannot be used; and the functions'
// environments, which contain no secrets.
func (p *Payhook) newKey(given awskms.IKey) awskms.IKey {
	if p.conf.Encryption == settings.EncryptionAWS {
		return nil
	}
	scope := constructs.NewConstruct(p, jsii.String("Encryption"))
	switch {
	case given != nil:
		return given
	case p.conf.Encryption != settings.EncryptionCMK:
		return awskms.Key_FromKeyArn(scope, jsii.String("Key"), jsii.String(p.conf.Encryption))
	}
	return awskms.NewKey(scope, jsii.String("Key"), &awskms.KeyProps{
		Description:       jsii.String("Payhook: " + p.conf.StackName() + ", all stored data"),
		EnableKeyRotation: jsii.Bool(true),
		// Data that is retained when the stack is deleted cannot be read without it.
		RemovalPolicy: keptUnlessLocal(p.conf),
	})
}

func (p *Payhook) keyARN() *string {
	if p.key == nil {
		return nil
	}
	return p.key.KeyArn()
}

// stores notes a construct that was made with the key.
func (p *Payhook) stores(made constructs.IConstruct) {
	if resource := made.Node().DefaultChild(); resource != nil {
		made = resource
	}
	p.stored = append(p.stored, made)
}

// allowKeyUse lets services use the key, and each role as its other permissions need. Several constructs can share a
// key. Call it after everything else is created.
//
// What is encrypted depends on the policies that allow the use of the key, so that a deployment that changes the key
// allows its use first. It keeps the policies of the earlier key until everything has the new one (see nameByContent).
func (p *Payhook) allowKeyUse(shared bool) {
	if p.key == nil {
		return
	}
	key, unique := p.key.KeyArn(), "" // what makes the ids of statements unique in the policy of the key
	if shared {
		unique = lettersAndDigits(p.conf.StackName())
	}
	p.customerKeys = append(p.customerKeys, key)
	p.allowServices(p.key, unique)
	p.output("EncryptionKey", "the key that encrypts the stored data", key)

	if p.conf.TokenStore == settings.InParameter {
		p.token.AddEnvironment(jsii.String(settings.TokenKeyEnv), key, nil)
	}
	for _, role := range p.roles() {
		policy := p.newPolicy(role, "Keys", role.useOfKey(key)...)
		for _, resource := range p.stored {
			resource.Node().AddDependency(policy)
		}
	}
	if p.ownsBus() {
		p.newBusFailures(p.Node().FindChild(jsii.String("Encryption")).(constructs.Construct))
	}
}

// UseKey lets the functions use a customer managed key that Props.Encryption does not name: the own
// key of an existing table or bucket, or an earlier key of Payhook, which existing objects keep.
// The policy of the key must let IAM policies of the account give access. To let the principals of
// [Payhook.GrantReadToken] and [Payhook.GrantReadLargeEvents] use it as well, call UseKey first.
func (p *Payhook) UseKey(key awskms.IKey) {
	awscdk.Annotations_Of(p).AcknowledgeWarning(jsii.String("payhook:"+useKeyWarning), nil)
	p.customerKeys = append(p.customerKeys, key.KeyArn())
	for _, role := range p.functionRoles() {
		p.newPolicy(role, "Key"+*key.Node().Addr(), role.useOfKey(key.KeyArn())...)
	}
}

// keyActions returns the actions on a customer managed key that a caller needs for an action on what it encrypts, and
// the service that makes the calls of KMS.
//
// For a request, DynamoDB decrypts the table's key on behalf of the caller, so a caller needs only kms:Decrypt (AWS,
// "DynamoDB encryption at rest usage notes" in the DynamoDB Developer Guide). To write a secret or to send a message to
// a queue, a caller needs both (AWS, "Secret encryption and decryption in AWS Secrets Manager" in the Secrets Manager
// User Guide, and "Key management" in the SQS Developer Guide). A standard parameter is encrypted with the key itself,
// and an advanced one with a data key (AWS, "AWS KMS encryption for AWS Systems Manager Parameter Store SecureString
// parameters").
func keyActions(action string) (service string, actions []string) {
	service, _, _ = strings.Cut(action, ":")
	switch {
	case service == "dynamodb", slices.Contains([]string{"s3:GetObject", "secretsmanager:GetSecretValue",
		"ssm:GetParameter"}, action):
		actions = []string{"kms:Decrypt"}
	case action == "s3:PutObject":
		actions = []string{"kms:GenerateDataKey"}
	case action == "ssm:PutParameter":
		actions = []string{"kms:Encrypt", "kms:GenerateDataKey"}
	case action == "secretsmanager:PutSecretValue", service == "sqs":
		actions = []string{"kms:Decrypt", "kms:GenerateDataKey"}
	}
	return service, actions
}

// useOfKey returns the permissions to use a customer managed key as the other permissions of the role need. They refer
// to nothing of the stack but the key: tables and others depend on their policy. So they name the services through
// which the role uses the key, and not the tables. What the role reads and writes through these is limited by its other
// permissions.
func (r *role) useOfKey(key *string) (statements []awsiam.PolicyStatement) {
	services := map[string][]string{} // by actions on the key
	for _, action := range r.actions {
		service, actions := keyActions(action)
		for _, a := range actions {
			if !slices.Contains(services[a], service) {
				services[a] = append(services[a], service)
				slices.Sort(services[a])
			}
		}
	}
	for _, action := range slices.Sorted(maps.Keys(services)) {
		statements = append(statements, useOf([]*string{key}, services[action], nil, action))
	}
	return statements
}

// useOf returns the permission to use keys through services, and only with an encryption context if that is not nil.
// AWS lists the names of services with the suffix amazonaws.com
// (https://docs.aws.amazon.com/kms/latest/developerguide/conditions-kms.html). For the Regions of China, there are
// policies with amazonaws.com.cn (https://github.com/kubernetes/kops/pull/18363), so both are allowed.
func useOf(keys []*string, services []string, context map[string]any, actions ...string) awsiam.PolicyStatement {
	var via []string
	for _, service := range services {
		name := service + "." + *awscdk.Aws_REGION() + "."
		via = append(via, name+"amazonaws.com", name+*awscdk.Aws_URL_SUFFIX())
	}
	conditions := map[string]any{"StringEquals": map[string]any{"kms:ViaService": via}}
	if context != nil {
		conditions["StringLike"] = context
	}
	return statement("", "", actions, keys, conditions)
}

// grantUse lets the principal decrypt with the customer managed keys that the functions can
// use, through one service and for the values of one key of the encryption context.
func (p *Payhook) grantUse(grantee awsiam.IGrantable, service, key string, values ...*string) {
	if len(p.customerKeys) == 0 {
		return
	}
	grantee.GrantPrincipal().AddToPrincipalPolicy(useOf(p.customerKeys, []string{service},
		map[string]any{"kms:EncryptionContext:" + key: values}, "kms:Decrypt"))
}

// allowServices adds the statements that three services need to the policy of the key. If that is of another app, they
// are printed, as JSON, for a person to add them before the deployment.
func (p *Payhook) allowServices(key awskms.IKey, unique string) {
	var statements []awsiam.PolicyStatement
	for _, s := range p.keyStatements(key, unique) {
		if added := key.AddToResourcePolicy(s, jsii.Bool(true)); !*added.StatementAdded {
			statements = append(statements, s)
		}
	}
	if statements == nil {
		return
	}
	document := awsiam.NewPolicyDocument(&awsiam.PolicyDocumentProps{Statements: &statements})
	awscdk.Annotations_Of(p).AddInfoV2(jsii.String("payhook:encryption"), jsii.String(
		"Before the deployment, the policy of "+*key.KeyArn()+" needs these statements:\n"+
			toJSON(awscdk.Stack_Of(p).Resolve(document))))
}

// keyStatements returns the statements of the key policy for the three services that use the key with their own
// principal. The policy also needs a statement that lets IAM policies of the account give access to the key. They refer
// to no resource of the stack, because these need the key first, and for a key that is given by its ARN not even to the
// stack's account and Region, so that a person can add them before the deployment.
func (p *Payhook) keyStatements(key awskms.IKey, unique string) (statements []awsiam.PolicyStatement) {
	stack := awscdk.Stack_Of(p)
	partition, region, account := stack.Partition(), stack.Region(), stack.Account()
	if arn := *key.KeyArn(); !*awscdk.Token_IsUnresolved(arn) { // of this account and Region
		parts := strings.Split(arn, ":")
		partition, region, account = &parts[1], &parts[3], &parts[4]
	}
	suffix := stack.UrlSuffix()
	if !*awscdk.Token_IsUnresolved(region) {
		suffix = regioninfo.RegionInfo_Get(region).DomainSuffix()
	}
	fromHere := map[string]any{"StringEquals": map[string]any{"aws:SourceAccount": account}}
	// A given bus can be encrypted with the same key, so the policy cannot refer to it.
	busName, operator := "*", "StringLike"
	if p.ownsBus() {
		busName, operator = p.conf.EventBusName, "StringEquals"
	}
	bus := arn(partition, "events", region, account, "event-bus/"+busName)
	archive := arn(partition, "events", region, account, "archive/"+p.archiveName())
	logs := arn(partition, "logs", region, account, "log-group:"+*topStack(p).StackName()+"-*")
	for _, s := range []struct {
		sid, service string // for whom
		needed       bool
		actions      []string
		conditions   map[string]any
	}{
		// AWS, "Encrypt log data in CloudWatch Logs using AWS Key Management Service" in the CloudWatch Logs User
		// Guide. Of the principals here, only that of CloudWatch Logs has the Region and the suffix of the partition,
		// amazonaws.com.cn in China (Default.servicePrincipal in package region-info of the CDK). CloudFormation
		// chooses the names of the log groups, which begin with that of the stack.
		{sid: "LogsOfThisStack", service: "logs." + *region + "." + *suffix, needed: true,
			actions: []string{"kms:Encrypt", "kms:Decrypt", "kms:ReEncrypt*", "kms:GenerateDataKey*",
				"kms:DescribeKey"},
			conditions: map[string]any{"ArnLike": map[string]any{"kms:EncryptionContext:aws:logs:arn": logs}}},
		// AWS re:Post, "How do I configure a CloudWatch alarm to use an encrypted Amazon SNS topic?".
		{sid: "AlarmsOfThisAccount", service: "cloudwatch.amazonaws.com", needed: true,
			actions: []string{"kms:Decrypt", "kms:GenerateDataKey*"}, conditions: fromHere},
		// AWS, "Encrypting EventBridge event buses with AWS KMS keys" in the
		// EventBridge User Guide. EventBridge calls DescribeKey without a context.
		{sid: "EventBridgeLooksAtTheKey", service: "events.amazonaws.com", needed: p.ownsBus(),
			actions: []string{"kms:DescribeKey"}, conditions: fromHere},
		{sid: "BusOfThisStack", service: "events.amazonaws.com", needed: p.ownsBus(),
			actions: []string{"kms:Decrypt", "kms:GenerateDataKey"}, conditions: map[string]any{
				"StringEquals": map[string]any{"aws:SourceAccount": account, eventBridgeContext: bus}}},
		// AWS documents these actions, and no other condition than on the context. For the value of the context, the
		// text says the ARN of the archive, and the example has the ARN of the bus
		// (https://docs.aws.amazon.com/eventbridge/latest/userguide/encryption-archives.html). Both name the account,
		// so no other account can use the key.
		{sid: "ArchiveOfThisStack", service: "events.amazonaws.com", needed: p.conf.ArchiveRetention > 0,
			actions:    []string{"kms:Decrypt", "kms:GenerateDataKey", "kms:ReEncrypt*"},
			conditions: map[string]any{operator: map[string]any{eventBridgeContext: []*string{bus, archive}}}},
	} {
		if s.needed {
			theKey := []*string{jsii.String("*")}
			statements = append(statements, statement(s.sid+unique, s.service, s.actions, theKey, s.conditions))
		}
	}
	return statements
}

const eventBridgeContext = "kms:EncryptionContext:aws:events:event-bus:arn"

// newBusFailures creates the dead-letter queue that AWS recommends for a bus with a customer managed key, and the alarm
// on it. EventBridge accepts an event, and sends it to this queue if the key cannot be used when the event is processed
// (AWS, "Using dead-letter queues to capture encrypted event errors in EventBridge" in the EventBridge User Guide). The
// message contains the event encrypted with the key, so the queue itself does not need the key.
func (p *Payhook) newBusFailures(scope constructs.Construct) {
	queue := newFailureQueue(scope, "BusFailures", nil)
	explain(queue, "CKV_AWS_27 the bus")
	// The bus refers to the queue, so the queue cannot refer to the bus.
	queue.AddToResourcePolicy(statement("TheBus", "events.amazonaws.com", []string{"sqs:SendMessage"},
		[]*string{queue.QueueArn()}, map[string]any{"ArnEquals": map[string]any{
			"aws:SourceArn": p.arn("events", "event-bus/"+p.conf.EventBusName)}}))
	p.bus.Node().DefaultChild().(awscdk.CfnResource).AddPropertyOverride(jsii.String("DeadLetterConfig.Arn"),
		queue.QueueArn())
	p.output("BusFailures", "the events that the bus could not encrypt or decrypt", queue.QueueUrl())
	p.busFailures = queue
	p.newAlarm(scope, alarm{name: "bus-failures", metric: over(5, maximum, messages(queue)), notifyOK: true})
}
