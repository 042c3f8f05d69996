package payhook

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/settings"
)

// PropsFromContext returns the props that the CDK context of scope sets: -c on the command
// line, cdk.json, cdk.context.json, and the context of the constructs above scope. Fields
// that the caller sets replace them. [New] checks both, and reports keys that are no setting.
func PropsFromContext(scope constructs.Construct) *Props {
	context, _ := scope.Node().GetAllContext(nil).(map[string]any)
	texts := map[string]string{}
	for key, value := range context {
		if value != nil && key != environmentKey && !settings.OfCDK(key) {
			texts[key] = settingText(value)
		}
	}
	return &Props{context: texts}
}

// StackName returns the name of the app's stack in the context of scope, and the default if
// there is none or it is invalid, which [New] reports with the other problems.
func StackName(scope constructs.Construct) *string {
	name := contextText(scope, settings.StackName.Key)
	if !settings.StackName.Accepts(name) {
		name = settings.StackName.Default
	}
	return jsii.String(name)
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

// resolve checks the props and returns the configuration of the deployment in scope. Its error
// lists all problems, with the name of the context key if the context sets it, and otherwise
// of the field. Nil props are those without a field.
func (p *Props) resolve(scope constructs.Construct) (settings.Deployment, error) {
	if p == nil {
		p = &Props{}
	}
	r := &resolver{Deployment: deploymentName(scope), Local: contextText(scope, settings.LocalKey) == "true",
		Texts: map[string]string{}, Unchecked: map[string]bool{}, Names: map[string]string{}}
	r.Account, r.Region = *awscdk.Stack_Of(scope).Account(), *awscdk.Stack_Of(scope).Region()
	for _, s := range settings.LocalSettings() {
		if text := contextText(scope, s.Key); text != "" && r.Local {
			r.Texts[s.Key] = text
		}
	}
	maps.Copy(r.Texts, p.context)
	fields := reflect.ValueOf(*p)
	for _, field := range reflect.VisibleFields(fields.Type()) {
		key, value := field.Tag.Get("context"), fields.FieldByIndex(field.Index)
		if key != "" && p.context == nil {
			r.Names[key] = field.Name
		}
		if key != "" && !value.IsZero() && value.Kind() != reflect.Interface {
			r.set(key, field.Name, value)
		}
	}
	r.setExisting(p)
	conf, err := settings.ParseDeployment(r.Given)
	if err = errors.Join(append(r.problems, err)...); err != nil {
		return settings.Deployment{}, settingsError{err, p.context != nil, *scope.Node().Path()}
	}
	return conf, nil
}

// resolver turns props into texts of settings.
type resolver struct {
	settings.Given
	problems []error
}

// set adds the text of a field.
func (r *resolver) set(key, field string, value reflect.Value) {
	var text string
	s := settings.ByKey(key)
	switch v := value.Interface().(type) {
	case time.Duration:
		text = durationText(v)
	case *bool:
		text = strconv.FormatBool(*v)
	case awslogs.RetentionDays:
		text = retentionDays[v]
	case []string:
		text = strings.Join(v, s.Separator)
		for i, element := range v {
			if parts, err := s.Elements(element); err != nil || len(parts) != 1 {
				r.unchecked(key, fmt.Errorf("%s: element %d, %q, must be exactly one value", field, i+1, element))
			}
		}
	case []int:
		text = strings.ReplaceAll(strings.Trim(fmt.Sprint(v), "[]"), " ", s.Separator)
	default:
		text = fmt.Sprint(v)
	}
	r.Names[key], r.Texts[key] = field, text
	if *awscdk.Token_IsUnresolved(text) || strings.Contains(text, "#{Token[") { // the latter in a list
		r.unchecked(key, fmt.Errorf("%s: must be a literal, no token of the CDK: it is checked when "+
			"the template is written", field))
	}
}

// unchecked adds the problem of a text that is not checked further.
func (r *resolver) unchecked(key string, problem error) {
	r.Unchecked[key], r.problems = true, append(r.problems, problem)
}

// setExisting adds the names and ARNs of existing resources. Tokens are not checked.
func (r *resolver) setExisting(p *Props) {
	add := func(s *settings.Setting, field string, id *string) {
		r.Names[s.Key], r.Texts[s.Key] = field, *id
		r.Unchecked[s.Key] = *awscdk.Token_IsUnresolved(id)
	}
	alone := func(s *settings.Setting, field string) {
		if _, ok := r.Texts[s.Key]; ok {
			r.problems = append(r.problems, fmt.Errorf("%s: must not be set together with %s", field,
				cmp.Or(r.Names[s.Key], s.Key)))
		}
	}
	if p.Certificate != nil {
		add(settings.CertificateARN, "Certificate", p.Certificate.CertificateArn())
	}
	if p.OwnershipCertificate != nil {
		add(settings.OwnershipCertificateARN, "OwnershipCertificate", p.OwnershipCertificate.CertificateArn())
	}
	if p.HostedZone != nil {
		add(settings.HostedZoneID, "HostedZone", p.HostedZone.HostedZoneId())
	}
	if p.EncryptionKey != nil {
		alone(settings.Encryption, "EncryptionKey")
		add(settings.Encryption, "EncryptionKey", p.EncryptionKey.KeyArn())
		if _, ok := p.EncryptionKey.(awskms.IAlias); ok {
			r.Unchecked[settings.Encryption.Key] = false // permissions name keys
		}
	}
	if p.Bus != nil {
		alone(settings.EventBusName, "Bus")
		add(settings.EventBusName, "Bus", p.Bus.EventBusName())
		r.Unchecked[settings.EventBusName.Key] = true // also the bus default
		r.BusARN = *p.Bus.EventBusArn()
		if _, ok := r.Texts[settings.ProtectBus.Key]; !ok {
			r.Texts[settings.ProtectBus.Key] = "false"
		}
	}
}

// durationText returns the text of a duration in the context.
func durationText(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d == Off:
		return settings.Off
	case d == Never:
		return settings.Never
	case d%day == 0:
		return fmt.Sprintf("%dd", d/day)
	}
	return d.String()
}

// retentionDays are the days of the retentions of logs. INFINITE is rejected.
var retentionDays = map[awslogs.RetentionDays]string{
	awslogs.RetentionDays_ONE_DAY: "1", awslogs.RetentionDays_THREE_DAYS: "3", awslogs.RetentionDays_FIVE_DAYS: "5",
	awslogs.RetentionDays_ONE_WEEK: "7", awslogs.RetentionDays_TWO_WEEKS: "14",
	awslogs.RetentionDays_ONE_MONTH: "30", awslogs.RetentionDays_TWO_MONTHS: "60",
	awslogs.RetentionDays_THREE_MONTHS: "90", awslogs.RetentionDays_FOUR_MONTHS: "120",
	awslogs.RetentionDays_FIVE_MONTHS: "150", awslogs.RetentionDays_SIX_MONTHS: "180",
	awslogs.RetentionDays_ONE_YEAR: "365", awslogs.RetentionDays_THIRTEEN_MONTHS: "400",
	awslogs.RetentionDays_EIGHTEEN_MONTHS: "545", awslogs.RetentionDays_TWO_YEARS: "731",
	awslogs.RetentionDays_THREE_YEARS: "1096", awslogs.RetentionDays_FIVE_YEARS: "1827",
	awslogs.RetentionDays_SIX_YEARS: "2192", awslogs.RetentionDays_SEVEN_YEARS: "2557",
	awslogs.RetentionDays_EIGHT_YEARS: "2922", awslogs.RetentionDays_NINE_YEARS: "3288",
	awslogs.RetentionDays_TEN_YEARS: "3653",
}

// settingsError lists the problems of the settings of a construct, with a hint for first-time
// users of the app.
type settingsError struct {
	problems    error
	fromContext bool
	path        string // of the construct
}

func (e settingsError) Error() string {
	problems := strings.ReplaceAll(e.problems.Error(), "\n", "\n  ")
	if !e.fromContext {
		return fmt.Sprintf("payhook: these fields of the Props of %s are wrong:\n\n  %s", e.path, problems)
	}
	return fmt.Sprintf("payhook: nothing was synthesized because of these settings:\n\n  %s\n\nSet each with -c "+
		"NAME=VALUE, or under \"context\" in cdk.json.", problems)
}

// contextText returns the text of a context key, and "" if there is none.
func contextText(scope constructs.Construct, key string) string {
	return settingText(scope.Node().TryGetContext(jsii.String(key)))
}

// settingText returns a value as -c would pass it, and "" for nil. In cdk.json, numbers and
// booleans need no quotes.
func settingText(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	default:
		text, _ := json.Marshal(v) // it was JSON
		return string(text)
	}
}
