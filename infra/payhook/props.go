package payhook

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/settings"
)

// Props are the settings of a deployment, and the parts of it that exist already. The fields of
// Settings are fields of Props, also in a literal: Props{BaseURL: "https://api.payments.example"}.
// The zero value of a field is its default. BaseURL, AuthURL and TokenManagerID are required.
// [New] reports all problems together.
//
// Strings and the elements of lists must be literals, except the ARNs of certificates and the ids of
// the hosted zone, subnets and security groups, which can be tokens of the CDK. No element of a list is blank.
type Props struct {
	settings.Settings

	// Bus is an existing bus for the events, in place of EventBusName, in the account and Region of the
	// stack. Its policy is changed only if ProtectBus is true. Nil: a bus is created.
	Bus awsevents.IEventBus
	// AlarmTopic is an existing topic in the Region of the stack that every alarm notifies. Nil: a topic is created.
	AlarmTopic awssns.ITopic
	// EncryptionKey is an existing key, not an alias, in the account and Region of the stack, in place of
	// Encryption.
	EncryptionKey awskms.IKey

	context map[string]string // of PropsFromContext: the texts of all context keys that are not the CDK's
}

// Durations with a meaning, for the fields whose limits have that word.
const (
	Off   = settings.Off
	Never = settings.Never
)

// PropsFromContext returns the props that the CDK context of scope sets: -c on the command
// line, cdk.json, cdk.context.json, and the context of the constructs above scope. Fields
// that the caller sets replace them. [New] checks both, and reports keys that are no setting.
func PropsFromContext(scope constructs.Construct) *Props {
	context, _ := scope.Node().GetAllContext(nil).(map[string]any)
	texts := settings.Texts(context)
	delete(texts, environmentKey)
	return &Props{context: texts}
}

// StackName returns the name of the app's stack in the context of scope, and the default if
// there is none or it is invalid, which [New] reports with the other problems.
func StackName(scope constructs.Construct) *string {
	return jsii.String(settings.StackName(PropsFromContext(scope).context))
}

// resolve checks the props and returns the configuration of the deployment in scope. Its error
// lists all problems, with the name of the context key if the context sets it, and otherwise
// of the field. Nil props are those without a field.
func (p *Props) resolve(scope constructs.Construct) (settings.Deployment, error) {
	if p == nil {
		p = &Props{}
	}
	stack := awscdk.Stack_Of(scope)
	given := settings.Given{Deployment: deploymentName(scope), Local: contextText(scope, settings.LocalKey) == "true",
		Account: known(stack.Account()), Region: known(stack.Region()),
		Texts: map[string]string{}, Fields: p.Settings, FieldNames: p.context == nil,
		Names: map[string]string{}, Unchecked: map[string]bool{}}
	maps.Copy(given.Texts, p.context)
	for _, s := range settings.LocalSettings() {
		if text := contextText(scope, s.Key); text != "" && given.Local {
			given.Texts[s.Key] = text
		}
	}

	problems := []error{checkAccount(given), p.checkTopic(given.Region)}
	// replace sets a setting to the name or ARN of an existing part.
	replace := func(field, key string, setting, id *string) {
		if name := settings.Named(key).Name; *setting != "" {
			problems = append(problems, fmt.Errorf("%s: must not be set together with %s", field, name))
		} else if given.Texts[key] != "" {
			problems = append(problems, fmt.Errorf("%s: must not be set together with %s", field, key))
		}
		*setting, given.Names[key] = *id, field
	}
	if p.EncryptionKey != nil {
		replace("EncryptionKey", "encryption", &given.Fields.Encryption, p.EncryptionKey.KeyArn())
		_, alias := p.EncryptionKey.(awskms.IAlias) // permissions name keys
		given.Unchecked["encryption"] = *awscdk.Token_IsUnresolved(p.EncryptionKey.KeyArn()) && !alias
	}
	if p.Bus != nil {
		replace("Bus", "eventBusName", &given.Fields.EventBusName, p.Bus.EventBusName())
		given.Unchecked["eventBusName"] = true // also the bus default
		given.BusARN = *p.Bus.EventBusArn()
		if given.Fields.ProtectBus == nil && given.Texts["protectBus"] == "" {
			given.Fields.ProtectBus = new(false)
		}
	}
	conf, err := settings.ParseDeployment(given)
	err = errors.Join(append(problems, err)...)
	if err == nil {
		return conf, nil
	}
	text := strings.ReplaceAll(err.Error(), "\n", "\n  ")
	if p.context == nil {
		return conf, fmt.Errorf("payhook: these fields of the Props of %s are wrong:\n\n  %s", *scope.Node().Path(),
			text)
	}
	return conf, fmt.Errorf("payhook: nothing was synthesized because of these settings:\n\n  %s\n\nSet each with -c "+
		"NAME=VALUE, or under \"context\" in cdk.json", text)
}

// known returns an account or Region, and "" if it is known only in the deployment.
func known(part *string) string {
	if *awscdk.Token_IsUnresolved(part) {
		return ""
	}
	return *part
}

// checkTopic returns an error for a topic of another Region than the stack's, which PutMetricAlarm rejects ("Invalid
// region specified").
func (p *Props) checkTopic(stack string) error {
	if p.AlarmTopic == nil || stack == "" {
		return nil
	}
	if region := known(p.AlarmTopic.Env().Region); region != "" && region != stack {
		return fmt.Errorf("AlarmTopic: must be in the Region %s of the stack, not in %s", stack, region)
	}
	return nil
}

// checkAccount returns an error if a local run would be deployed to AWS, as in a shell without the environment of the
// local run. The CDK CLI sets the variable to the account of its credentials:
// https://docs.aws.amazon.com/cdk/v2/guide/configure-env.html
func checkAccount(given settings.Given) error {
	account := os.Getenv("CDK_DEFAULT_ACCOUNT")
	if !given.Local || account == "" || account == settings.LocalAccount {
		return nil
	}
	return fmt.Errorf("%s: is for the local run, but the credentials are of account %s: eval \"$(payhook local env)\" "+
		"in this shell", settings.LocalKey, account)
}

// deploymentName returns the name of the deployment in scope, which differs from all others in
// the account and Region: that of the stack, followed by the id of the construct in it unless
// that is Default. The name of a stack has no underscore.
func deploymentName(scope constructs.Construct) string {
	stack := topStack(scope)
	if id := idIn(stack, scope); id != "" {
		return *stack.StackName() + "_" + id
	}
	return *stack.StackName()
}

// topStack returns the stack of a construct that is not nested. The name of a nested stack is a
// token, and begins with that of the stack that contains it.
func topStack(scope constructs.Construct) awscdk.Stack {
	stack := awscdk.Stack_Of(scope)
	for stack.NestedStackParent() != nil {
		stack = stack.NestedStackParent()
	}
	return stack
}

// idIn returns the letters and digits of the path of a construct below a stack, without
// Default, which is no part of logical ids either.
func idIn(stack awscdk.Stack, c constructs.Construct) string {
	path := strings.Split(strings.TrimPrefix(*c.Node().Path(), *stack.Node().Path()), "/")
	path = slices.DeleteFunc(path, func(id string) bool { return id == "Default" })
	return lettersAndDigits(strings.Join(path, ""))
}

// lettersAndDigits returns a text without other characters.
func lettersAndDigits(text string) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' {
			return r
		}
		return -1
	}, text)
}

// contextText returns the text of a context key, and "" if there is none.
func contextText(scope constructs.Construct, key string) string {
	return settings.Text(scope.Node().TryGetContext(jsii.String(key)))
}
