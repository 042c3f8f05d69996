package local

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	ebtypes "github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/names"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// furtherStacks is the key in the context of the CDK app for the settings of further
// stacks.
const furtherStacks = "localStacks"

// mechanisms are those with client certificates, each with the stack that shows it
// in the table.
var mechanisms = []struct{ authentication, stack, domain string }{
	{settings.ByMTLS, "PayhookMTLS", "mtls.payhook.test"},
	{settings.ByBoth, "PayhookBoth", "both.payhook.test"},
}

// Certificates are further client certificates of the payment service, which a stack knows.
type Certificates struct {
	Next     tls.Certificate // the next one, which is pinned already
	Expiring tls.Certificate // pinned, and valid for 10 days
	Renewed  tls.Certificate // pinned, the one after Expiring
	Revoked  tls.Certificate
	Unpinned tls.Certificate
}

// NewCertificates issues certificates by the CA of an identity.
func NewCertificates(identity *paymenttest.Identity) Certificates {
	return Certificates{
		Next: identity.Next(), Renewed: identity.Next(), Revoked: identity.Next(), Unpinned: identity.Next(),
		Expiring: identity.CA.Client(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(10 * 24 * time.Hour) }),
	}
}

// Settings are the settings of a stack that knows the certificates and the current one of the
// identity.
func (c Certificates) Settings(identity *paymenttest.Identity) map[string]string {
	return map[string]string{
		settings.ClientCertPins.Key: strings.Join([]string{pinOf(identity.Certificate()), pinOf(c.Next),
			pinOf(c.Expiring), pinOf(c.Renewed), pinOf(c.Revoked)}, ";"),
		settings.RevokedSerials.Key: clientcert.SerialOf(c.Revoked.Leaf).Number + "@" +
			clientcert.Issuer(c.Revoked.Leaf),
	}
}

// addFurther adds a stack for each mechanism with client certificates.
func (s *stack) addFurther() error {
	s.special = NewCertificates(s.identity)
	for _, m := range mechanisms {
		conf := s.special.Settings(s.identity)
		conf[settings.StackName.Key], conf[settings.EventBusName.Key] = m.stack, settings.DefaultBusName(m.stack)
		conf[settings.Authentication.Key], conf[settings.DomainName.Key] = m.authentication, m.domain
		added := s.with(conf)
		var err error
		if added.opts.settings, err = added.completeSettings(added.opts.settings); err != nil {
			return err
		}
		s.further = append(s.further, added)
	}
	return nil
}

// pinOf returns the pin of a certificate's key as the setting clientCertPins has it.
func pinOf(c tls.Certificate) string {
	pin := clientcert.PinOf(c.Leaf)
	return hex.EncodeToString(pin[:])
}

// furtherSettings is the value of furtherStacks.
func (s *stack) furtherSettings() string {
	var all []map[string]string
	for _, f := range s.further {
		all = append(all, f.opts.settings)
	}
	text, err := json.Marshal(all)
	if err != nil {
		panic(err) // texts always have a JSON form
	}
	return string(text)
}

// furtherPaths are the paths of the further stacks in the CDK app.
func furtherPaths() []string {
	var paths []string
	for _, m := range mechanisms {
		paths = append(paths, m.stack+"/Payhook")
	}
	return paths
}

// deployFurther deploys the further stacks, with a consumer for each.
func (s *stack) deployFurther(ctx context.Context) error {
	stacks, err := s.deployStacks(ctx, "deploy-further", s.assembly(), nil, furtherPaths()...)
	if err != nil {
		return err
	}
	for _, f := range s.further {
		f.Deployment, f.emulator = s.Deployment, s.emulator
		f.Stack = f.setting(settings.StackName)
		outputs := stacks[f.Stack]
		queue, err := f.subscribe(ctx, outputs[names.EventBusNameOutput])
		if err != nil {
			return err
		}
		f.Queues = map[string]string{released: queue}
		if err := f.readOutputs(ctx, outputs); err != nil {
			return err
		}
		if err := f.fillCredentials(ctx); err != nil {
			return err
		}
		if f.setting(settings.KeysAuth) == "bearer" {
			if _, right, err := f.firstToken().do(ctx); err != nil || !right {
				return fmt.Errorf("%s has no token: %w", f.Stack, err)
			}
		}
	}
	return nil
}

// subscribe makes a rule for released payments on a bus, and returns the URL of the
// queue behind it.
func (s *stack) subscribe(ctx context.Context, bus string) (string, error) {
	pattern, err := os.ReadFile(filepath.Join(s.opts.top, "events", "rules", released+".json"))
	if err != nil {
		return "", err
	}
	name := s.Stack + "-" + released
	rules, queues := eventbridge.NewFromConfig(s.AWS), sqs.NewFromConfig(s.AWS)
	rule, err := rules.PutRule(ctx,
		&eventbridge.PutRuleInput{Name: &name, EventBusName: &bus, EventPattern: aws.String(string(pattern))})
	if err != nil {
		return "", err
	}
	arn := fmt.Sprintf("arn:aws:sqs:%s:%s:%s", region, account, name)
	queue, err := queues.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &name, Attributes: map[string]string{
		string(sqstypes.QueueAttributeNamePolicy): fmt.Sprintf(`{"Version":"2012-10-17","Statement":[{`+
			`"Effect":"Allow","Principal":{"Service":"events.amazonaws.com"},"Action":"sqs:SendMessage",`+
			`"Resource":%q,"Condition":{"ArnEquals":{"aws:SourceArn":%q}}}]}`, arn, *rule.RuleArn),
	}})
	if err != nil {
		return "", err
	}
	put, err := rules.PutTargets(ctx, &eventbridge.PutTargetsInput{Rule: &name, EventBusName: &bus,
		Targets: []ebtypes.Target{{Id: aws.String("Queue"), Arn: &arn}}})
	if err != nil {
		return "", err
	}
	if put.FailedEntryCount > 0 {
		return "", fmt.Errorf("rule %s has no target: %s", name, aws.ToString(put.FailedEntries[0].ErrorMessage))
	}
	return *queue.QueueUrl, nil
}

// showFurther deploys the further stacks, does what the table shows of them, and
// returns it.
func (s *stack) showFurther(ctx context.Context) ([]section, error) {
	if len(s.further) == 0 {
		return nil, nil
	}
	if err := s.opts.progress.step("cdk deploy of the stacks with client certificates",
		func() error { return s.deployFurther(ctx) }); err != nil {
		return nil, err
	}
	var sections []section
	// One after the other: they change the certificate that the service presents.
	for _, f := range s.further {
		part := section{title: f.Stack}
		if err := s.opts.progress.step("sending with client certificates to "+f.Stack, func() (err error) {
			in := receive(f.AWS, f.Queues)
			defer in.stop()
			if part.rows, err = f.send(ctx, in, f.mechanismRows()); err != nil {
				return err
			}
			part.checks = f.directChecks()
			return runChecks(ctx, part.checks)
		}); err != nil {
			return nil, err
		}
		sections = append(sections, part)
	}
	return sections, nil
}

// mechanismRows are the rows of a further stack.
func (s *stack) mechanismRows() []*row {
	one := paymenttest.Event()
	rows := append([]*row{s.accepted("one event", deliver(one)),
		{sent: "the same again", webhook: deliver(one), status: s.successStatus(), answer: taken(0, 1)}},
		s.certificateRows()...)
	unsigned, forged := deliver(paymenttest.Event()), deliver(paymenttest.Event())
	unsigned.Flaw, forged.Flaw = paymenttest.SignatureMissing, paymenttest.SignatureChanged
	if usesSignature(s.opts.settings) {
		return about(ofCertificates, append(rows, rejected("valid certificate, invalid signature", forged),
			rejected("valid certificate, no signature", unsigned))...)
	}
	return about(ofCertificates, append(rows, s.accepted("valid certificate, no signature", unsigned))...)
}

// directChecks invoke the webhook function without the endpoint, with what only
// somebody who may invoke functions can make: events with the certificate of the
// service that do not come from the API's domain.
func (s *stack) directChecks() []*check {
	var checks []*check
	for _, c := range []struct {
		what   string
		change func(*events.APIGatewayV2HTTPRequest)
	}{
		{"with the domain of a function URL", func(e *events.APIGatewayV2HTTPRequest) {
			e.RequestContext.DomainName = "abcdefghij.lambda-url." + region + ".on.aws"
		}},
		{"with the domain of execute-api", func(e *events.APIGatewayV2HTTPRequest) {
			e.RequestContext.DomainName = e.RequestContext.APIID + ".execute-api." + region + ".amazonaws.com"
		}},
		{"with the id of another API", func(e *events.APIGatewayV2HTTPRequest) { e.RequestContext.APIID = "another" }},
	} {
		checks = append(checks, &check{topic: ofDirect, what: "invoked " + c.what, must: "401",
			do: func(ctx context.Context) (string, bool, error) {
				event, err := s.directEvent(ctx, c.change)
				if err != nil {
					return "", false, err
				}
				var answer struct{ StatusCode int }
				err = s.invoke(ctx, "webhook", string(event), &answer)
				return fmt.Sprint(answer.StatusCode), answer.StatusCode == 401, err
			}})
	}
	return checks
}

// directEvent returns the event that the endpoint would make of an authentic webhook,
// changed.
func (s *stack) directEvent(ctx context.Context, change func(*events.APIGatewayV2HTTPRequest)) ([]byte, error) {
	r, err := s.shown.Sender().Request(ctx,
		paymenttest.Webhook{URL: s.WebhookURL, Payload: paymenttest.Delivery(paymenttest.Event())})
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	text, err := s.endpoint.Event(r, body, s.identity.Certificate().Leaf)
	if err != nil {
		return nil, err
	}
	var event events.APIGatewayV2HTTPRequest
	if err := json.Unmarshal(text, &event); err != nil {
		return nil, err
	}
	change(&event)
	return json.Marshal(event)
}
