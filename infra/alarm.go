package main

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook/shared/contract"
)

// alarm makes an alarm on a metric that the function writes, minute by minute.
// Its description says what to do.
func alarm(scope constructs.Construct, f function, id, description, metric string, statistic *string, props *awscloudwatch.AlarmProps) {
	props.AlarmDescription = jsii.String(description)
	props.Metric = awscloudwatch.NewMetric(&awscloudwatch.MetricProps{
		Namespace:     jsii.String(contract.MetricNamespace),
		MetricName:    jsii.String(metric),
		DimensionsMap: &map[string]*string{contract.MetricDimension: f.FunctionName()},
		Statistic:     statistic,
		Period:        awscdk.Duration_Minutes(jsii.Number(1)),
	})
	awscloudwatch.NewAlarm(scope, jsii.String(id), props)
}
