package dev.edgedec.core

import ai.onnxruntime.OrtEnvironment
import java.io.File
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.jsonObject
import kotlinx.serialization.json.jsonPrimitive
import org.junit.jupiter.api.AfterAll
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Assumptions.assumeTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.TestInstance

/** Texts of the demo bundle on the real runtime: whatever drafts, they are plain decoding's. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
class DemoTextsTest {
    private val opened = Opened.open(Demo.folder, DecoderOptions(threads = 1, maxContext = 512, batchInvariant = true))

    @AfterAll
    fun close() = opened.close()

    @Test
    fun `every drafter and length gives plain decoding's text`() {
        for (request in REQUESTS) {
            val plain = ids(request.copy(drafter = Drafter.NONE))
            for (drafter in Drafter.values()) {
                for (length in listOf(null, 0, 1, 3, 8)) {
                    val drafted = ids(request.copy(drafter = drafter, draftLength = length))
                    assertEquals(plain, drafted, "$request $drafter $length")
                }
            }
        }
    }

    @Test
    fun `drafts are accepted, so that the texts above say something`() {
        val drafts = listOf(Drafter.MODEL, Drafter.LOOKUP, Drafter.AUTO)
        for (drafter in drafts) {
            val figures = REQUESTS.map { figures(it.copy(drafter = drafter, draftLength = 4)) }
            assertTrue(figures.sumOf { it.accepted } > 20, "$drafter")
            assertTrue(figures.sumOf { it.drafted - it.accepted } > 20, "$drafter")
            assertTrue(figures.sumOf { it.rounds } < figures.sumOf { it.newTokens }, "$drafter")
        }
    }

    @Test
    fun `the broken twin, which keeps a wrong draft, gives other texts`() {
        val session = opened.target.open(512)
        val engine = Engine(session, LookupDrafter(), FixedLength(3), System::nanoTime, KeepsFirst)
        val same = REQUESTS.all { request ->
            val prompt = opened.tokenizer.encode(request.prompt)
            val found = ArrayList<Int>()
            val sampler = Sampler(request.sampling, opened.target.vocabSize, prompt)
            engine.run(prompt, sampler, StopRule(maxNewTokens = request.maxNewTokens)) { tokens ->
                found += tokens.map { it.token }
            }
            found == ids(request.copy(drafter = Drafter.NONE))
        }
        session.close()
        assertFalse(same)
    }

    @Test
    fun `a text that continues another one is as if decoded alone`() {
        val request = REQUESTS[0].copy(drafter = Drafter.AUTO)
        val first = ids(request)
        val longer = request.copy(prompt = request.prompt + opened.tokenizer.decode(first.toIntArray()) + "\n    def ")
        val figures = figures(longer)
        val again = ids(longer)
        assertTrue(figures.reusedTokens > 0)
        figures(request.copy(prompt = "class Other:\n"))
        assertEquals(again, ids(longer))
    }

    @Test
    fun `texts are those of Python with the same version and kernels`() {
        val file = File(vectors, "texts.json")
        assumeTrue(file.exists(), "vectors/texts.json is not there: write it by python -m tools.vectors --texts")
        val texts = vectorFile("texts.json")
        val made = texts.getValue("made_with").jsonObject
        val version = OrtEnvironment.getEnvironment().version
        val theirs = made.text("onnxruntime")
        assumeTrue(theirs == version, "the texts are of ONNX Runtime $theirs, this is $version")
        val found = classOf(features(), texts.getValue("classes").jsonObject)
        assumeTrue(found != null, "no texts are of a processor with the features ${features()}")
        val cases = texts.list("cases").map { it.jsonObject }.filter { it.text("class") == found }
        assertTrue(cases.isNotEmpty(), found)
        for (case in cases) {
            val params = case.getValue("params").jsonObject
            val seed = params["seed"]?.jsonPrimitive?.content?.toLong() ?: 0
            val changed = JsonObject(params - "seed")
            val request = Request(
                prompt = case.text("prompt"),
                sampling = sampling(changed, seed),
                maxNewTokens = case.int("max_new_tokens"),
            )
            for (drafter in listOf(Drafter.NONE, Drafter.AUTO)) {
                assertEquals(case.ints("ids").toList(), ids(request.copy(drafter = drafter)), case.text("prompt"))
            }
        }
    }

    @Test
    fun `a processor is of one class at most`() {
        val classes = vectorFile("texts.json").getValue("classes").jsonObject
        for ((name, found) in classes) {
            val has = found.jsonObject.list("has").map { it.jsonPrimitive.content }.toSet()
            assertEquals(name, classOf(has, classes))
            assertNull(classOf(has + "amx_int8", classes))
            assertNull(classOf(has - "avx2", classes))
        }
        assertNull(classOf(emptySet(), classes))
    }

    private fun ids(request: Request): List<Int> {
        val found = ArrayList<Int>()
        opened.generate(request, Cancellation()) { tokens -> found += tokens.map { it.token } }
        return found
    }

    private fun figures(request: Request): Figures = opened.generate(request, Cancellation()) {}

    /** The processor's features, as Linux names them. */
    private fun features(): Set<String> = File("/proc/cpuinfo").takeIf { it.exists() }?.readLines().orEmpty()
        .firstOrNull { it.startsWith("flags") }?.substringAfter(':')?.trim()?.split(' ').orEmpty().toSet()

    /** The name of the class whose processors have the same kernels, if the file has its texts. */
    private fun classOf(features: Set<String>, classes: JsonObject): String? = classes.entries.firstOrNull {
        val (has, lacks) = listOf("has", "lacks").map { part ->
            it.value.jsonObject.list(part).map { name -> name.jsonPrimitive.content }
        }
        features.containsAll(has) && lacks.none(features::contains)
    }?.key

    private companion object {
        val PROMPTS = listOf(
            "def read_lines(path):\n    \"\"\"Return the lines of a file.\"\"\"\n",
            "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n",
            "import os\nimport sys\n\ndef main(",
        )
        val SAMPLINGS = listOf(
            Sampling(),
            Sampling(temperature = 0.8, seed = 1),
            Sampling(temperature = 1.2, topK = 40, topP = 0.9, minP = 0.02, repetitionPenalty = 1.1, seed = 2),
        )
        val REQUESTS = PROMPTS.flatMap { prompt ->
            SAMPLINGS.map { Request(prompt = prompt, sampling = it, maxNewTokens = 48, ignoreEos = true) }
        }
    }
}
