package dev.edgedec.core

import java.io.ByteArrayOutputStream
import java.io.PrintStream
import kotlinx.serialization.json.Json
import kotlinx.serialization.json.jsonObject
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

class MainTest {
    private val bundle = Demo.folder.path

    @Test
    fun `json has ids, text and figures`() {
        val (code, out, _) = run(bundle, "def f(x):\n", "--json", "--max-new-tokens", "12", "--seed=7", "--temperature", "0.8")
        assertEquals(0, code)
        val found = Json.parseToJsonElement(out).jsonObject
        val figures = found.getValue("figures").jsonObject
        assertEquals(12, found.ints("ids").size)
        assertEquals(12, figures.int("new_tokens"))
        assertEquals(7L, figures.long("seed"))
        assertTrue(found.text("text").isNotEmpty())
    }

    @Test
    fun `text and ids are printed as they come, then a line of figures`() {
        val request = arrayOf(bundle, "def f(x):\n", "--drafter", "none", "--max-new-tokens", "5", "--threads", "1")
        val text = run(*request).out
        val json = Json.parseToJsonElement(run(*request, "--json").out).jsonObject
        assertTrue(text.startsWith(json.text("text") + "\n\n5 tokens (length)"), text)
        assertTrue(run(*request, "--ids").out.startsWith(json.ints("ids").joinToString(" ") + " \n\n5 tokens"))
    }

    @Test
    fun `wrong options are one sentence and exit code 2`() {
        val wrong = mapOf(
            listOf("--fast") to "--fast: unknown option: see decode --help",
            listOf("--drafter", "tree") to "--drafter tree: expected model, lookup, none or auto",
            listOf("--temperature", "warm") to "--temperature warm: expected a number",
            listOf("--temperature", "-1") to "temperature -1.0: expected 0 (greedy) or 0.001 to 1e+06",
            listOf("--top-k", "-1") to "--top-k -1: expected a whole number from 0 on",
            listOf("--max-new-tokens", "0") to "--max-new-tokens 0: expected a whole number from 1 on",
            listOf("--threads=0") to "--threads 0: expected a whole number from 1 on",
            listOf("--seed") to "--seed: expected a value",
            listOf("more") to "expected a bundle and a prompt, got 3 of them",
        )
        for ((options, message) in wrong) {
            val (code, out, err) = run(bundle, "def f(x):\n", *options.toTypedArray())
            assertEquals(listOf(2, "", "decode: $message\n"), listOf(code, out, err))
        }
        val (code, _, err) = run("nowhere", "def f(x):\n")
        assertEquals(2, code)
        assertEquals("decode: nowhere is not a folder: give a bundle that `edgedec export` wrote\n", err)
    }

    @Test
    fun `help lists every option`() {
        val (code, out, _) = run("--help")
        assertEquals(0, code)
        val listed = listOf("drafter", "draft-length", "temperature", "top-k", "top-p", "min-p", "seed", "max-new-tokens", "threads", "json", "ids")
        listed.forEach { assertTrue("--$it" in out, it) }
    }

    private data class Ran(val code: Int, val out: String, val err: String)

    private fun run(vararg args: String): Ran {
        val out = ByteArrayOutputStream()
        val err = ByteArrayOutputStream()
        val code = decode(args.toList(), PrintStream(out, true, "UTF-8"), PrintStream(err, true, "UTF-8"))
        return Ran(code, out.toString("UTF-8"), err.toString("UTF-8"))
    }
}
