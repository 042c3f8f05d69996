package contract

// Every metric that a function writes is in this CloudWatch namespace and has
// one dimension, the name of the Lambda function.
const (
	MetricNamespace = "Payhook"
	MetricDimension = "FunctionName"
)
