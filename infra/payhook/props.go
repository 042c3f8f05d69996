package payhook

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscertificatemanager"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/constructs-go/constructs/v10"

	"payhook.example/shared/settings"
)

// Props are the settings of a deployment, and the parts of it that exist already. The fields of Settings are fields of
// Props, also in a literal: Props{BaseURL: "https://api.payments.example"}. The zero value of a field is its default.
// BaseURL, AuthURL and TokenManagerID are required. [New] reports all problems together.
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
	// EncryptionKey is an existing key, not an alias, in the account and Region of the stack, in place of Encryption.
	EncryptionKey awskms.IKey

	// OwnershipCertificate is a public certificate of DomainName. Client certificates need it if CertificateARN was
	// imported or issued by a private CA.
	OwnershipCertificate awscertificatemanager.ICertificate

	given map[string]settings.Value // of ReadSettings, by their keys
}

// Durations with a meaning, for the fields whose limits have that word.
const (
	Off   = settings.Off
	Never = settings.Never
)

// resolve checks the props and returns the configuration of the deployment in scope. Its error lists all problems. Nil
// props are those without a field.
func (p *Props) resolve(scope constructs.Construct) (settings.Deployment, error) {
	if p == nil {
		p = &Props{}
	}
	stack := awscdk.Stack_Of(scope)
	given := settings.Given{Deployment: deploymentName(scope), Local: isLocal(scope), InGo: p.given == nil,
		Account: known(stack.Account()), Region: known(stack.Region()), Values: map[string]settings.Value{}}
	maps.Copy(given.Values, p.given)
	fields, err := settings.Fields(p.Settings)
	maps.Copy(given.Values, fields)
	problems := []error{err, checkAccount(given)}
	place := func(field string, region, account *string) {
		for _, problem := range given.Misplaced(*region, *account) {
			problems = append(problems, fmt.Errorf("%s: %s", field, problem))
		}
	}
	if p.AlarmTopic != nil { // PutMetricAlarm rejects one of another Region ("Invalid region specified")
		place("AlarmTopic", p.AlarmTopic.Env().Region, stack.Account())
	}
	if p.OwnershipCertificate != nil {
		arn := stack.SplitArn(p.OwnershipCertificate.CertificateArn(), awscdk.ArnFormat_SLASH_RESOURCE_NAME)
		place("OwnershipCertificate", arn.Region, arn.Account)
		if given.Values["domainName"].Text == "" {
			problems = append(problems, errors.New("OwnershipCertificate: has no effect without DomainName"))
		}
	}
	// replace sets a setting to the name or ARN of an existing part.
	replace := func(field, key string, to settings.Value) {
		if earlier, ok := given.Values[key]; ok {
			problems = append(problems, fmt.Errorf("%s: must not be set together with %s", field,
				cmp.Or(earlier.Name, key)))
		}
		to.Name = field
		given.Values[key] = to
	}
	if p.EncryptionKey != nil {
		_, alias := p.EncryptionKey.(awskms.IAlias) // permissions name keys
		arn := *p.EncryptionKey.KeyArn()
		replace("EncryptionKey", "encryption",
			settings.Value{Text: arn, Unchecked: *awscdk.Token_IsUnresolved(arn) && !alias})
	}
	if p.Bus != nil {
		replace("Bus", "eventBusName",
			settings.Value{Text: *p.Bus.EventBusName(), Unchecked: true}) // also the bus default
		place("Bus", p.Bus.Env().Region, p.Bus.Env().Account)
		if given.Values["protectBus"].Text == "" {
			given.Values["protectBus"] = settings.Value{Text: "false"}
		}
	}
	conf, err := settings.ParseDeployment(given)
	err = errors.Join(append(problems, err)...)
	if err == nil {
		return conf, nil
	}
	text := strings.ReplaceAll(err.Error(), "\n", "\n  ")
	if p.given == nil {
		return conf, fmt.Errorf("payhook: these fields of the Props of %s are wrong:\n\n  %s", *scope.Node().Path(),
			text)
	}
	return conf, fmt.Errorf("payhook: nothing was synthesized because of these settings:\n\n  %s\n\nSet each with -c "+
		"NAME=VALUE, or in infra/settings.json", text)
}

// known returns an account or Region, and "" if it is known only in the deployment.
func known(part *string) string {
	if *awscdk.Token_IsUnresolved(part) {
		return ""
	}
	return *part
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
