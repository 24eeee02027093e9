terraform import 'grit_runner_drain.example["blue-v1"]' i-0123456789abcdef0
