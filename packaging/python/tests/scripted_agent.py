"""An agent without a model: it makes the spans that OpenInference makes for one, with a tracer of the real SDK."""
import json


class ToolCall:
    def __init__(self, tool, arguments, result, thought="I call the next tool.", is_error=False):
        self.tool, self.arguments, self.result, self.thought, self.is_error = tool, arguments, result, thought, is_error


def run_agent(tracer, request, calls, answer):
    """Each call is a reply of the model with one tool call, or, for a list, with several at once."""
    from opentelemetry.trace import Status, StatusCode

    messages = [{"role": "user", "content": request}]
    with tracer.start_as_current_span("agent", attributes={"openinference.span.kind": "AGENT", "input.value": request}) as root:
        for turn, together in enumerate(call if isinstance(call, list) else [call] for call in calls):
            asked = [(f"call_{turn}_{place}", call) for place, call in enumerate(together)]
            reply = {"role": "assistant", "content": together[0].thought, "tool_calls": [(name, call.tool, json.dumps(call.arguments)) for name, call in asked]}
            with tracer.start_as_current_span("llm", attributes=llm_attributes(messages, reply)):
                pass
            messages.append(reply)
            for name, call in asked:
                attributes = {"openinference.span.kind": "TOOL", "tool.name": call.tool, "input.value": json.dumps(call.arguments), "output.value": call.result}
                with tracer.start_as_current_span(call.tool, attributes=attributes) as span:
                    if call.is_error:
                        span.set_status(Status(StatusCode.ERROR, call.result))
                messages.append({"role": "tool", "content": call.result, "tool_call_id": name})
        with tracer.start_as_current_span("llm", attributes=llm_attributes(messages, {"role": "assistant", "content": answer})):
            pass
        root.set_attribute("output.value", answer)
    return answer


def llm_attributes(messages, reply):
    attributes = {"openinference.span.kind": "LLM", "llm.model_name": "scripted"}
    for group, listed in (("llm.input_messages", messages), ("llm.output_messages", [reply])):
        for place, message in enumerate(listed):
            prefix = f"{group}.{place}.message"
            attributes[f"{prefix}.role"] = message["role"]
            attributes[f"{prefix}.content"] = message["content"]
            if "tool_call_id" in message:
                attributes[f"{prefix}.tool_call_id"] = message["tool_call_id"]
            for number, (name, tool, arguments) in enumerate(message.get("tool_calls", ())):
                call = f"{prefix}.tool_calls.{number}.tool_call"
                attributes[f"{call}.id"] = name
                attributes[f"{call}.function.name"] = tool
                attributes[f"{call}.function.arguments"] = arguments
    return attributes
