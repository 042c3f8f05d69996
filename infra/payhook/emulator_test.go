package payhook

import (
	"bytes"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/jsii-runtime-go"
)

func TestUnsupportedResourcesAreRemovedAndNamed(t *testing.T) {
	app := newApp(t)
	stack := awscdk.NewStack(app, jsii.String("Payhook"), nil)
	bus := awsevents.NewEventBus(stack, jsii.String("Bus"), nil)
	bus.Archive(jsii.String("Archive"),
		&awsevents.BaseArchiveProps{EventPattern: &awsevents.EventPattern{Source: jsii.Strings("x")}})
	metric := awscloudwatch.NewMetric(&awscloudwatch.MetricProps{Namespace: jsii.String("N"),
		MetricName: jsii.String("M")})
	newAlarm := func(id string, metric awscloudwatch.IMetric) {
		awscloudwatch.NewAlarm(stack, jsii.String(id), &awscloudwatch.AlarmProps{
			Metric: metric, Threshold: jsii.Number(1), EvaluationPeriods: jsii.Number(1),
		})
	}
	newAlarm("Plain", metric)
	newAlarm("Sum", awscloudwatch.NewMathExpression(&awscloudwatch.MathExpressionProps{
		Expression: jsii.String("m*2"), UsingMetrics: &map[string]awscloudwatch.IMetric{"m": metric},
	}))

	var output bytes.Buffer
	removeUnsupported(stack, &output)
	for _, want := range []string{
		"Payhook/Bus/Archive/Archive (AWS::Events::Archive)",
		"Payhook/Sum (AWS::CloudWatch::Alarm on metric math)",
	} {
		if !strings.Contains(output.String(), want) {
			t.Errorf("not named: %s, in\n%s", want, &output)
		}
	}
	if lines := strings.Count(output.String(), "\n"); lines != 2 {
		t.Errorf("%d lines, want 2:\n%s", lines, &output)
	}
	if err := synthesize(app); err != nil {
		t.Fatal(err)
	}
	tm := readTemplate(t, *app.Outdir()+"/Payhook.template.json")
	if len(tm.Resources) != 2 {
		t.Errorf("left: %v", tm.names)
	}
	tm.get(t, "Bus", "AWS::Events::EventBus")
	tm.get(t, "Plain", "AWS::CloudWatch::Alarm")
}

func TestNothingIsPrintedWhenNothingIsRemoved(t *testing.T) {
	app := newApp(t)
	stack := awscdk.NewStack(app, jsii.String("Payhook"), nil)
	awsevents.NewEventBus(stack, jsii.String("Bus"), nil)
	var output bytes.Buffer
	removeUnsupported(stack, &output)
	if output.Len() > 0 {
		t.Errorf("unexpected output: %s", &output)
	}
}
