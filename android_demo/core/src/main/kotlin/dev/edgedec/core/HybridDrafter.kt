package dev.edgedec.core

/**
 * Prompt lookup where it hits, the draft model elsewhere (`edgedec/decoding/drafting/hybrid.py`).
 *
 * While lookup drafts, the draft model does not run and catches up later. The model comes first where its drafts have
 * been worth more.
 */
class HybridDrafter(private val lookup: DraftSource, private val model: DraftSource) : DraftSource {
    override val name get() = "hybrid"

    override fun begin(sampler: Sampler) {
        lookup.begin(sampler)
        model.begin(sampler)
    }

    override fun propose(length: Int, lengths: Lengths): IntArray {
        val modelFirst = lengths.prefers(model, lookup)
        val draft = (if (modelFirst) model else lookup).propose(length, lengths)
        return if (draft.isNotEmpty()) draft else (if (modelFirst) lookup else model).propose(length, lengths)
    }

    override fun interrupt() = model.interrupt()

    override fun resume() = model.resume()

    override fun close() {
        lookup.close()
        model.close()
    }
}
