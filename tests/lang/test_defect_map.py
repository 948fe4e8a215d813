"""Which test holds which known defect: the rows of A9 and of table C, and the defects that A2 to A8 name.

`name` is what the specification of the language calls it; the test is `file::function`, below tests/lang.
"""

import ast
from functools import cache
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent

DEFECTS = {
    # A2, A3: expressions and programs.
    "A2 an empty list of choices generates freely": "test_known_defects.py::test_a2_choices_that_are_an_empty_list_are_no_free_generation",
    "A2 conflicts are sent": "test_parameters.py::test_wrong_values_raise_where_the_gen_is_built",
    "A2 options beside choices are dropped": "test_select.py::test_a_gen_with_choices_is_a_select_and_takes_no_other_constraint",
    "A2 a schema must be a string": "test_typed_results.py::test_a_schema_is_a_class_a_dict_or_text_and_read_as_the_class",
    "A2 n is not available when streaming": "test_outputs.py::test_a_stream_of_several_outputs_shows_the_first",
    "A2 the values of types stay strings": "test_typed_results.py::test_the_variable_holds_a_value_of_the_type",
    "A3 parameter names are captured": "test_parameters.py::test_program_parameters_may_have_the_names_of_options",
    "A3 a batch runs a body once more": "test_batch.py::test_each_body_runs_once",
    "A3 placeholders make a batch fail": "test_known_defects.py::test_a3_a_body_that_looks_its_argument_up_runs_in_a_batch",
    "A3 bound values win": "test_known_defects.py::test_a3_a_bound_value_gives_way_to_that_of_the_call",
    "A3 bind loses the speculation": "backends/test_speculation.py::test_it_stays_with_bound_programs_and_is_checked",
    "A3 the tracing scope is process-wide": "test_known_defects.py::test_a3_a_program_called_from_another_thread_during_a_trace_runs",
    # A4, A5: states and scores.
    "A4 forks ignore inline execution": "test_known_defects.py::test_a4_inline_execution_holds_for_forks",
    "A4 a thread for each state": "test_known_defects.py::test_a4_forks_need_no_threads",
    "A4 no cancel": "test_failures.py::test_cancel_ends_every_wait_and_aborts_the_request",
    "A4 a state cannot begin with messages": "test_composition.py::test_a_run_begins_with_messages",
    "A5 a certain token is left out": "test_select.py::test_mean_picks_the_first_and_counts_a_certain_token",
    # A6: fork and join.
    "A6 images of an open message are lost": "backends/test_chat_media.py::test_a6_branches_keep_the_images_of_an_open_message",
    "A6 a plain string is rejected by a group": "test_known_defects.py::test_a6_a_group_takes_a_plain_string",
    "A6 gathers lose alignment": "test_fork_join.py::test_gather_is_aligned_by_branch",
    "A6 a failed child is silent": "test_fork_join.py::test_failed_branches_are_reported_at_the_join",
    "A6 a second join is dropped": "test_known_defects.py::test_a6_a_second_round_replaces_the_list_of_the_first",
    "A6 joining texts needs an endpoint that is gone": "test_fork_join.py::test_text_join_goes_on",
    "A6 a merge across the fork loses the tail of the match": "test_fork_join.py::test_branches_share_the_prefix_in_the_cache",
    # A7: roles and reasoning.
    "A7 roles nest": "test_roles.py::test_a_role_inside_a_role_raises_at_the_call",
    "A7 messages are stripped": "test_known_defects.py::test_a7_messages_are_kept_as_written",
    "A7 separating reasoning deletes earlier text": "test_reasoning.py::test_a7_answer_and_thinking_are_two_variables_and_the_programs_text_stays",
    "A7 outside of a role the answer stands twice": "test_reasoning.py::test_outside_of_roles_the_answer_stands_once",
    "A7 streams skip it": "test_reasoning.py::test_thinking_and_answer_stream_by_themselves_and_together",
    # A8: speculation.
    "A8 the state lives on the backend": "backends/test_speculation.py::test_threads_of_one_backend_do_not_meet",
    "A8 characters are compared with tokens": "backends/test_speculation.py::test_limits_are_counted_in_tokens",
    "A8 what does not match is accepted": "backends/test_speculation.py::test_a_chat_model_is_asked_again_until_it_says_what_the_program_says",
    "A8 streams are incompatible": "backends/test_speculation.py::test_it_is_refused_with_streams_and_without_effect_where_prefixes_are_cached",
    # A9: failures, row by row, and streaming.
    "A9.1": "test_known_defects.py::test_a9_row_1_a_server_error_is_the_error_of_the_variable_and_no_warning",
    "A9.2": "test_known_defects.py::test_a9_row_2_nothing_hangs_after_a_failure",
    "A9.3": "test_known_defects.py::test_a9_row_3_a_stream_that_fails_raises",
    "A9.4": "test_known_defects.py::test_a9_row_4_one_body_that_raises_leaves_the_other_results",
    "A9.5": "test_known_defects.py::test_a9_row_5_a_backend_failure_in_a_batch_is_raised",
    "A9.6": "test_known_defects.py::test_a9_row_6_a_role_is_left_when_its_block_raises",
    "A9.7": "test_known_defects.py::test_a9_row_7_a_missing_backend_is_a_clear_error",
    "A9 the last piece is lost": "test_known_defects.py::test_a9_the_last_piece_of_a_stream_is_never_lost",
    "A9 the event loop is blocked": "test_known_defects.py::test_a9_a_waiting_async_iterator_leaves_the_loop_to_others",
    "A9 stop lists are changed": "test_parameters.py::test_the_callers_lists_stay_as_they_are",
    "A9 a stop string and a dtype fail": "test_known_defects.py::test_a9_a_stop_that_is_a_string_goes_with_a_dtype",
    # C: pain points, row by row.
    "C1": "test_process_config.py::test_c1_the_default_method_can_be_one_without_bias",
    "C2": "test_select.py::test_splitting_constant_text_makes_no_difference",
    "C3": "test_select.py::test_metadata_holds_exactly_the_tokens_of_each_choice",
    "C4": "test_select.py::test_permuting_the_choices_permutes_the_scores",
    "C5": "test_known_defects.py::test_c5_forking_before_any_text_and_racing_with_the_parent",
    "C6": "test_process_config.py::test_c6_a_template_of_the_run_stands_in_for_the_servers",
    "C7": "test_known_defects.py::test_c7_text_that_is_rendered_already_is_sent_once_and_then_as_ids",
    "C8": "test_known_defects.py::test_c8_what_the_default_limit_cut_says_so",
    "C9": "test_table_c.py::test_c9_a_limit_past_the_context_is_lowered_with_a_note",
    "C10": "test_known_defects.py::test_c10_an_empty_regex_is_refused_where_the_gen_is_built",
    "C11": "test_table_c.py::test_c11_a_pattern_is_compiled_once_and_says_how_long_it_took",
    "C12": "test_table_c.py::test_c12_a_limit_is_hard_and_what_it_cuts_is_flagged",
    "C13": "test_async_programs.py::test_a_thousand_async_programs_need_no_threads",
    "C14": "test_aborts.py::test_closing_an_iterator_aborts_on_the_server",
    "C15": "test_streaming.py::test_stops_are_cut_off_and_reported",
    "C16": "test_tools.py::test_a_required_call_is_constrained_and_typed",
    "C17": "test_reasoning.py::test_c17_a_model_of_unknown_marks_is_refused_at_the_call_and_a_name_helps",
    "C18": "test_fork_join.py::test_seeds_differ_by_gen_and_branch_and_repeat",
    "C19": "test_parameters.py::test_the_language_has_the_servers_parameters_and_defaults",
    "C20": "backends/test_chat_media.py::test_c20_any_number_of_images_stands_at_any_place_in_order",
    "C21": "test_recording.py::test_a_recording_has_every_node_with_what_was_sent_and_said",
    "C22": "test_known_defects.py::test_c22_an_unknown_name_lists_the_known_ones",
    "C23": "test_table_c.py::test_c23_every_variable_says_what_was_cached_and_scoring_reuses_its_prompt",
    "C24": "test_table_c.py::test_c24_a_server_and_an_object_in_this_process_keep_the_same_contract",
    "C25": "test_select.py::test_choice_has_all_scores_and_probabilities",
    "C26": "test_typed_results.py::test_partial_objects_grow_to_the_value",
    "C27": "test_batch.py::test_collect_keeps_order_and_every_failure",
    "C28": "test_known_defects.py::test_c28_a_batch_runs_its_items_at_the_same_time",
    "C29": "test_table_c.py::test_c29_a_backend_that_cannot_is_asked_nothing",
    "C30": "test_known_defects.py::test_c30_a_pick_is_scored_over_the_tokens_that_free_generation_would_use",
}


@cache
def functions_of(file):
    tree = ast.parse((FOLDER / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("name", DEFECTS)
def test_every_defect_has_a_test(name):
    file, _, function = DEFECTS[name].partition("::")
    assert function in functions_of(file)


def test_no_row_is_left_out():
    assert {f"C{row}" for row in range(1, 31)} | {f"A9.{row}" for row in range(1, 8)} <= DEFECTS.keys()


def test_tests_that_name_a_row_are_the_ones_of_the_map():
    listed = {entry.partition("::")[2] for entry in DEFECTS.values()}
    named = {function for function in functions_of("test_known_defects.py") if function.startswith("test_")}
    assert named - listed == {
        "test_a6_a_variable_set_in_one_branch_keeps_its_place_and_failures_are_seen",
        "test_c17_c19_unknown_parameters_are_rejected_by_name",
    }
